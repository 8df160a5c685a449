// Runs a schedule over the ranks of an axis: calls the functions of the stages, and moves
// activations and gradients between them, as the schedule says and as it was proved.
//
//     Executor pipeline(axis, schedule, bytes, stages);   // on every rank
//     for (...) pipeline.step();                          // one batch
//
// It knows bytes, not tensors. A stage's input and output buffers are valid during the call alone:
// the executor reuses them, as schedule.h describes. So a stage keeps the data that its backward
// will need. The executor starts receives before it needs their data, and waits for a send when it
// needs the send's buffer. It counts the time of these waits.
//
// Buffers are memory of the axis's device. On a GPU a function of a stage puts its work on the
// stream current() and may return before it is done; the executor orders messages before and after
// it. Times in statistics and traces are the host's then.
//
// A failure on a rank (a stage that throws, a peer that dies) fails step() on all: the error names
// the rank, the action and the reason. The executor aborts the axis, so no rank waits for ever.
// Then the executor is unusable. Of work on a GPU the host may hear in the next call only
// (Axis::check_failure()).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "../axis.h"
#include "schedule.h"

namespace tutti::parallel::pipeline {

/// The functions of the stages of a rank.
struct Stages {
  using In = std::span<const std::byte>;
  using Out = std::span<std::byte>;
  /// `in`: the output of the previous stage; empty for the first stage, which reads the batch.
  /// `out`: the function fills it; empty for the last stage, which has the loss.
  std::function<void(int stage, int micro_batch, In in, Out out)> forward;
  /// `in`: the gradient of the forward's output; empty for the last stage. `out`: the function
  /// fills it with the gradient of the forward's input; empty for the first stage. If `backward` is
  /// not set, the executor calls backward_inputs and backward_weights.
  std::function<void(int stage, int micro_batch, In in, Out out)> backward;
  std::function<void(int stage, int micro_batch, In in, Out out)> backward_inputs;
  std::function<void(int stage, int micro_batch)> backward_weights;
};

/// What one rank has done in all steps so far.
struct Statistics {
  struct Count {
    std::uint64_t messages = 0, bytes = 0;
    bool operator==(const Count&) const = default;
  };
  std::uint64_t steps = 0, actions = 0;
  Count sent, received;                  // between ranks
  int live = 0;                          // the most activations that were kept at a time
  std::size_t buffers = 0;               // bytes of memory that the executor has
  std::chrono::nanoseconds computed{0};  // in the functions of Stages
  std::chrono::nanoseconds waited{0};    // for messages: bubbles, and communication not overlapped
};

/// One action, as it ran.
struct Ran {
  using Time = std::chrono::steady_clock::time_point;
  Action action;
  Time waited_from, from, to;  // it waited, then ran
};

class Executor {
 public:
  /// All ranks of the axis call it, with the same schedule and sizes: `bytes[b]` is the size of a
  /// message from stage b to stage b + 1, and back. Throws Error on all ranks alike: unproven_plan,
  /// invalid_argument (also if the ranks of a host need more memory for buffers than it has left),
  /// or mismatch if ranks differ. `stages` has the functions that this rank's actions need.
  Executor(Axis& axis, const Schedule& schedule, std::vector<std::size_t> bytes, Stages stages);
  Executor(Executor&&) noexcept;
  ~Executor();

  /// Runs the schedule once.
  void step();

  const Statistics& statistics() const;
  /// Sets a function that runs after each action; empty: none. If the axis has a trace, its track
  /// "pipeline" shows the actions in any case.
  void observe(std::function<void(const Ran&)> observer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::parallel::pipeline

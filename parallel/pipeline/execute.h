// Runs a schedule over the ranks of an axis: calls what the stages compute, and moves activations
// and gradients between them, as the schedule says and as it was proved.
//
//     Executor pipeline(axis, schedule, bytes, stages);   // on every rank
//     for (...) pipeline.step();                          // one batch
//
// It knows bytes, not tensors. What a stage gets is there during the call alone, and so is where it
// writes its result to: the buffers are used again, as schedule.h describes. So a stage keeps what
// its backward will need. Receives are started before their data is needed, and sends are waited
// for when their buffer is: what is waited for is counted.
//
// A failure on a rank (a stage that throws, a peer that dies) fails step() on all: the error says
// on which rank, in which action, and why, and the axis is aborted, so nobody waits for ever. Then
// the executor cannot be used any more.
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

/// What the stages of a rank compute.
struct Stages {
  using In = std::span<const std::byte>;
  using Out = std::span<std::byte>;
  /// `in`: what the stage before has made; nothing for the first stage, which reads the batch.
  /// `out`: to be filled; nothing for the last stage, which has the loss.
  std::function<void(int stage, int micro_batch, In in, Out out)> forward;
  /// `in`: the gradient of what the stage's forward made; nothing for the last stage. `out`: to be
  /// filled with the gradient of what it was given; nothing for the first stage. If there is no
  /// backward, backward_inputs and backward_weights are called for it.
  std::function<void(int stage, int micro_batch, In in, Out out)> backward;
  std::function<void(int stage, int micro_batch, In in, Out out)> backward_inputs;
  std::function<void(int stage, int micro_batch)> backward_weights;
};

/// Of one rank, of all steps so far.
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
  /// All ranks of the axis call it, with the same schedule and sizes: `bytes[b]` is what goes from
  /// stage b to stage b + 1 for a micro-batch, and back. Throws Error on all ranks alike:
  /// unproven_plan, invalid_argument (also where the ranks of a host need more memory for buffers
  /// than it has left), or mismatch if ranks have something different. `stages` has the functions
  /// that this rank's actions need.
  Executor(Axis& axis, const Schedule& schedule, std::vector<std::size_t> bytes, Stages stages);
  Executor(Executor&&) noexcept;
  ~Executor();

  /// Runs the schedule once.
  void step();

  const Statistics& statistics() const;
  /// Is called after each action; empty: nothing is. Where the axis has a trace, actions are on its
  /// track "pipeline" in any case.
  void observe(std::function<void(const Ran&)> observer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::parallel::pipeline

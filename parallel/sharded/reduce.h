// How gradients are reduced to shards: a reduce_scatter among the ranks that share a unit, then,
// where there are replicas, an all_reduce of the shard among these. What arrives goes straight to
// the shards; or, where it is to be added to earlier gradients of the step, or divided, it takes
// the place of the rank's own block in the buffer in which the gradients were made.
//
// What is started when follows from the order of the units alone, never from what happens to be
// ready: so all ranks start the same in the same order, on each axis. A unit's second step starts
// when the next unit is complete.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "state.h"

namespace tutti::parallel {

class GradientReduction {
 public:
  explicit GradientReduction(State& state) : state_(state) {}

  /// A buffer for the unit's gradients, of zeros on request; false if it has some already. Waits
  /// for earlier reductions where too many of them hold buffers.
  bool prepare(UnitState& u, bool zeros);
  /// The gradients are complete.
  void start(UnitState& u);
  void wait_all();
  /// Waits for what is under way, whatever becomes of it.
  void abandon() noexcept;
  /// Forgets the unit's gradients.
  void discard(UnitState& u);

  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  struct Job {
    UnitState* unit;
    Buffer buffer;    // none where the gradients stay where they are
    std::byte* data;  // all of the unit's, of the reduce type
    bool straight;    // to the shards
    std::vector<Pending> pending;
    bool scattered = false;
  };

  /// Where the rank's block of a piece arrives.
  std::byte* target(const Job& job, const Piece& piece) const;

  void set_aside(UnitState& u);
  void finish_first();
  void reduce_among_replicas(Job& job);
  void store(Job& job);
  ReduceOp op() const;

  State& state_;
  std::deque<Job> jobs_;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace tutti::parallel

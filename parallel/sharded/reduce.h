// Reduces gradients to shards: a reduce_scatter among the ranks that share a unit, then, if there
// are replicas, an all_reduce of the shard among these. The result goes straight to the shards. If
// it is added to earlier gradients of the step, or divided, it replaces the rank's own block in the
// buffer of the gradients first.
//
// The order of the units alone decides what starts when, never what happens to be ready. So all
// ranks start the same operations in the same order, on each axis. A unit's second step starts when
// the next unit is complete.
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
  /// for earlier reductions if too many of them hold buffers.
  bool prepare(UnitState& u, bool zeros);
  /// The gradients are complete.
  void start(UnitState& u);
  void wait_all();
  /// Waits for operations under way, and ignores their results.
  void abandon() noexcept;
  /// Forgets the unit's gradients.
  void discard(UnitState& u);

  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  struct Job {
    UnitState* unit;
    Buffer buffer;    // none if the gradients stay in place
    std::byte* data;  // all of the unit's, of the reduce type
    bool straight;    // to the shards
    std::vector<Pending> pending;
    bool scattered = false;
  };

  Call call_for(Collective collective, const void* in, void* out, std::size_t count) const;
  /// Adds what compression has left out before.
  void feed_back(const Job& job) const;
  /// Notes what compressing this rank's shard leaves out, and lets the call note what it does.
  void feed_back_among_replicas(const Job& job, const Piece& piece, Call& call) const;
  /// Ends the reductions of this unit, which are under way.
  void finish_all_of(const UnitState& u);
  /// The place at which the rank's block of a piece arrives.
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

// The symbolic run: the contents of every chunk after every step, and whether `out` ends up right.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/verify.h"
#include "collectives/verify/network.h"
#include "collectives/verify/schedule.h"
#include "collectives/verify/values.h"

namespace tutti::proof {

/// A visitor of Schedule::run, for one tile.
class SymbolicRun {
 public:
  SymbolicRun(const Network& network, const Schedule& schedule, const VerifyOptions& options);

  void step(const NetworkStep& step, std::uint32_t tile);
  void rank_ends(int) {}

  /// Call after the run. Throws Refuted unless all results are right, and equal on all ranks.
  void check_results() const;
  /// Verdict::roundings, after that.
  std::uint32_t roundings() const;

 private:
  void check_messages(const NetworkStep& step);
  void move_chunk(const NetworkStep& step, std::uint32_t i);
  Value read(const NetworkStep& step, std::uint32_t source, std::uint32_t i) const;
  Value reduce(const NetworkStep& step);
  /// `v`, of a step of a compressed plan, as its destinations get it.
  Value compress(const NetworkStep& step, Value v);
  /// What wide destinations of a step that does not complete a reduction get.
  Value unrounded();
  void check_result(int rank, std::uint32_t chunk) const;
  void check_sum(int rank, std::uint32_t chunk, Value v) const;
  /// Of a sum that is right; of a compressed plan.
  void check_is_in_8_bits(int rank, std::uint32_t chunk, Value v) const;
  /// Checks the order of a sum that is right.
  void check_is_canonical(int rank, std::uint32_t chunk, Value v) const;

  const Network& net_;
  const Schedule& schedule_;
  Values values_;
  bool reduces_;
  Format format_;
  Invariance invariant_;
  std::vector<Value> memory_;                // by location
  std::vector<Value> slots_;                 // by chunk of a slot
  std::vector<std::uint32_t> message_size_;  // by slot: chunks
  std::vector<bool> message_is_wide_;        // by slot, in a wide plan
  std::vector<Value> sources_;               // scratch: of one chunk of one step
};

}  // namespace tutti::proof

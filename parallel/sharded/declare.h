// Whether all ranks have declared the same model, and the same policy, and something that can be.
#pragma once

#include <vector>

#include "policy.h"
#include "roll_call.h"
#include "state.h"
#include "unit.h"

namespace tutti::parallel {

/// Throws the same on all ranks: mismatch, with what differs and on which rank; or, where all have
/// declared the same, but it cannot be, invalid_argument.
void agree_on_declarations(RollCall& roll_call, const std::vector<Unit>& units,
                           const Policy& policy, const ShardedAxes& axes);

/// Where `columns` entries of each rank, one rank after the other, first differ, and on which rank;
/// rank -1: nowhere.
struct Difference {
  std::size_t entry = 0;
  int rank = -1, other = -1;
};
Difference first_difference(const std::vector<std::uint64_t>& entries, std::size_t columns);

}  // namespace tutti::parallel

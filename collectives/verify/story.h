// The words of the verifier for faults: steps and sets of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/plan.h"

namespace tutti::proof {

/// Thrown inside of the verifier, and only there: the plan is wrong, for this reason.
struct Refuted {
  std::string story;
};

/// Ranks begin ... end-1.
struct RankInterval {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// "rank 0 lane 1 step 4 (out[1], to(1) <- from(2) + in[1])".
std::string step_name(const RankPlan& part, std::uint32_t lane, std::size_t step);
/// "rank 3", "ranks 0-2, 5".
std::string rank_names(std::span<const RankInterval> ranks);

}  // namespace tutti::proof

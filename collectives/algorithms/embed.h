// Embedding: a plan for a few ranks becomes a stage of a plan for more, by renaming. Ranks are
// renamed, its `in` and `out` become places in the larger plan's memory, and its chunks become runs
// of the larger plan's chunks. Steps, lanes and channels stay the same.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/plan.h"

namespace tutti::algorithm {

/// The places of the blocks of a buffer: block b begins at chunk first + b * stride.
struct Region {
  Space space = Space::out;
  std::uint32_t first = 0;
  std::uint32_t stride = 0;
};

/// The place of a part.
struct Placement {
  std::vector<int> ranks;         // the part's rank i is ranks[i]
  std::uint32_t pieces = 1;       // of the larger plan: chunks that make up a block of the part
  std::function<Region(int)> in;  // where `in` of the part's rank i lies; out or tmp, if computed
  std::function<Region(int)> out;
  Region in_shape, out_shape;  // blocks of this rank's in or out that are as large as those
  std::uint32_t tmp = 0;       // where the part's tmp begins
  bool completes = false;      // what the part reduces completely, is complete
};

/// Appends `part`'s steps. Leaves out copies of a chunk onto itself. Throws Error(invalid_argument)
/// if a step's span would not be contiguous any more.
void embed(RankPlanBuilder& builder, const RankPlan& part, const Placement& placement);

/// Makes all lanes of `rank` wait for each other here: signals through lane 0.
void join_lanes(RankPlanBuilder& builder, std::uint32_t lanes, int rank);

}  // namespace tutti::algorithm

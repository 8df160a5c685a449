// Random plans that are meant to be right: units of chunks travel by random ways, through random
// lanes and channels, are added up in random trees, kept in tmp, fetched through windows, with
// signals in between. Whether they are right is the verifier's question; most are.
#pragma once

#include <cstdint>
#include <random>

#include "collectives/plan.h"

namespace tutti::test {

struct RandomPlanSizes {
  int most_ranks = 4;
  std::uint32_t most_lanes = 12;
  std::uint32_t most_pieces = 8;
  bool windows = true;  // some plans address other ranks' memory
};

/// The same for the same state of `random`.
Plan random_plan(std::mt19937_64& random, const RandomPlanSizes& sizes);

}  // namespace tutti::test

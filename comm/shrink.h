// Before ranks that shrink() connect: they have to exclude the same ranks. Each says whom it
// excludes where the others can read it (ControlBlock::announced), and waits until all that stay
// have said the same. Nothing else of the communicator is used, which may have failed.
//
// Each also says which ranks it has lost, and takes the others' word for that: whoever is lost to
// one survivor has to be excluded by all, who get peer_lost until they do. Thus the lists of ranks
// that know of different losses come together; only a list that no loss explains is a mismatch.
// Where ranks of two hosts have lost each other, each host takes the side of its own ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/rank_group.h"

namespace tutti {

struct Shrinking {
  std::vector<int> survivors;  // in order, as are
  std::vector<int> excluded;
  std::uint64_t times = 0;  // how often this rank has shrunk to these survivors, from 1

  /// `excluded` may have ranks twice; all are ranks of the communicator.
  static Shrinking without(std::span<const int> excluded, int ranks);
  /// Whether the excluded ones, however they go on, cannot be one, too.
  bool is_quorum() const {
    return survivors.size() > excluded.size() ||
           (survivors.size() == excluded.size() && survivors.front() == 0);
  }
};

/// Returns when all survivors are here. Throws Error: mismatch where one waits with another list,
/// which it has called more often than this rank (`calls_with`, by survivors); peer_lost,
/// timed_out.
void meet_to_shrink(RankGroup& group, const Shrinking& mine,
                    const std::function<std::uint64_t(const std::vector<int>&)>& calls_with,
                    Deadline deadline);

}  // namespace tutti

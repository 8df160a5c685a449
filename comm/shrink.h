// Before ranks that shrink() connect: they have to exclude the same ranks. Each rank writes the
// excluded ranks where the others can read them (ControlBlock::announced), and waits until all that
// stay have written the same. It uses nothing else of the communicator, which may have failed.
//
// Each rank also says which ranks it has lost, and believes the others. All survivors have to
// exclude a rank that one of them has lost, and get peer_lost until they do. So the lists of ranks
// that know of different losses come together; only a list that no loss explains is a mismatch.
// Where ranks of two hosts have lost each other, each host takes the side of its own ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "transport/rank_group.h"

namespace tutti {

struct Shrinking {
  std::vector<int> survivors;  // in order, as are
  std::vector<int> excluded;
  std::uint64_t times = 0;  // how often this rank has shrunk to these survivors, from 1

  /// `excluded` may have a rank twice; all are ranks of the communicator.
  static Shrinking without(std::span<const int> excluded, int ranks);
  /// Whether the excluded ones, however they go on, cannot be one, too.
  bool is_quorum() const {
    return survivors.size() > excluded.size() ||
           (survivors.size() == excluded.size() && survivors.front() == 0);
  }
};

/// Returns when all survivors are here. Throws Error: peer_lost; timed_out; mismatch if a rank
/// waits with another list, with which it has called more often than this rank (`calls_with`, by
/// survivors).
void meet_to_shrink(RankGroup& group, const Shrinking& mine,
                    const std::function<std::uint64_t(const std::vector<int>&)>& calls_with,
                    Deadline deadline);

}  // namespace tutti

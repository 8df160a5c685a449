// Before ranks that shrink() connect: they have to exclude the same ranks. Each says whom it
// excludes where the others can read it (ControlBlock::shrinking), and waits until all that stay
// have said the same. Nothing else of the communicator is used, which may have failed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/rank_group.h"

namespace tutti {

struct Shrinking {
  std::vector<int> survivors;  // in order
  std::string excluded;        // "1 3"
  std::uint64_t times = 0;     // how often this rank has shrunk to these survivors, from 1

  /// `excluded` may have ranks twice; all are ranks of the communicator.
  static Shrinking without(std::span<const int> excluded, int ranks);
};

/// Returns when all survivors are here. Throws Error: mismatch where one waits with another list,
/// which it has called more often than this rank (`calls_with`, by survivors); peer_lost,
/// timed_out.
void meet_to_shrink(RankGroup& group, const Shrinking& mine,
                    const std::function<std::uint64_t(const std::vector<int>&)>& calls_with,
                    Deadline deadline);

}  // namespace tutti

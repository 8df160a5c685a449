// Folding: algorithms that pair ranks by the bits of their numbers need a power of two of them.
// With p the largest that there is among n ranks, e = n - p ranks are extra: of the first 2e ranks
// the odd ones. Each hands its data to the even neighbour below it, which acts for both, and gets
// the result back at the end. The p ranks that are left are the cores, numbered in order; so the
// blocks that belong to a range of cores (each its own, and its extra neighbour's) are contiguous.
// (Rabenseifner's way, as in MPICH.)
#pragma once

#include <cstdint>

#include "collectives/algorithms/common.h"

namespace tutti::algorithm {

/// Contiguous chunks.
struct Run {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// Contiguous cores.
struct Cores {
  int first = 0;
  int count = 0;
};

struct Fold {
  int cores;   // p
  int extras;  // e

  explicit Fold(int ranks) : cores(power_of_two_in(ranks)), extras(ranks - cores) {}

  bool is_extra(int rank) const { return rank < 2 * extras && rank % 2 == 1; }
  /// Whether `rank` is a core that acts for the extra rank after it.
  bool has_extra(int rank) const { return rank < 2 * extras && rank % 2 == 0; }
  /// Of a rank that is not extra.
  int core_of(int rank) const { return rank < 2 * extras ? rank / 2 : rank - extras; }
  int rank_of(int core) const { return core < extras ? 2 * core : core + extras; }
  /// The blocks, one per rank, of the ranks for which these cores act.
  Run blocks(Cores c) const {
    const auto begin = [this](int core) { return u32(core < extras ? 2 * core : core + extras); };
    return {begin(c.first), begin(c.first + c.count) - begin(c.first)};
  }
};

}  // namespace tutti::algorithm

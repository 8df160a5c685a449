// Folding: algorithms that pair ranks by the bits of their numbers need a power of two of them. Let
// p be the largest power of two up to n ranks. Then e = n - p ranks are extra: the odd ones of the
// first 2e ranks. Each extra rank hands its data to the even neighbour below it, which acts for
// both, and gets the result back at the end. The other p ranks are the cores, numbered in order. So
// the blocks of a range of cores (each core's own, and its extra neighbour's) are contiguous.
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
  /// The core of a rank that is not extra.
  int core_of(int rank) const { return rank < 2 * extras ? rank / 2 : rank - extras; }
  int rank_of(int core) const { return core < extras ? 2 * core : core + extras; }
  /// The blocks, one per rank, of the ranks for which these cores act.
  Run blocks(Cores c) const {
    const auto begin = [this](int core) { return u32(core < extras ? 2 * core : core + extras); };
    return {begin(c.first), begin(c.first + c.count) - begin(c.first)};
  }
};

}  // namespace tutti::algorithm

// A barrier of the ranks of one host in memory that they share: the same one around every library,
// so that no library's own barrier is part of its measurement.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::peers {

inline constexpr int kMaxRanks = 64;

/// A 64-bit number on a cache line of its own, that only one rank writes.
struct alignas(64) Counter {
  std::atomic<std::uint64_t> value{0};
};

/// Returns once `counter` is at least `target`. Spins, then yields the core to others. Throws after
/// a minute, because then the other rank has died.
void wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t target);

/// All zero is its initial state, so it can live in a new mapping.
struct Barrier {
  Counter arrived[kMaxRanks];

  void wait(int rank, int ranks) {
    const std::uint64_t mine = arrived[rank].value.load(std::memory_order_relaxed) + 1;
    // release: a rank that sees the count sees all earlier writes of this rank (wait_for acquires)
    arrived[rank].value.store(mine, std::memory_order_release);
    for (int r = 0; r < ranks; ++r) wait_for(arrived[r].value, mine);
  }
};

}  // namespace tutti::peers

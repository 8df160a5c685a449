// Fences of two threads, of one process or of two, where one side passes often and the other one
// seldom. A thread stores A and then looks at B; another one stores B and then looks at A. With a
// fence between on both sides, one of them sees the other's store. A full fence costs as much as a
// cache miss, as all stores before it have to arrive first. Here the frequent side has a
// light_fence(), which only holds the compiler. The seldom side has a heavy_fence(): the kernel
// makes every core that runs a thread of a process that has joined pass a full one (membarrier).
#pragma once

#include <atomic>

namespace tutti {

/// This process joins, so its threads may use light_fence(). False: the kernel cannot do it.
bool join_heavy_fences();

inline void light_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// Stores 1 in `word` before this thread looks at anything else. `light`: the process has joined,
/// and who looks at `word` passes a heavy_fence() first.
template <class Word>
void announce(Word& word, bool light) {
  word.store(1, std::memory_order_relaxed);
  light ? light_fence() : std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// As a full fence of this thread, and of each thread of the processes of this machine that have
/// joined.
void heavy_fence();

}  // namespace tutti

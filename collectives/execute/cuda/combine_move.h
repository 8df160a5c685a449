// The device combine: destinations <- combine(sources) for bytes that lie together, by all threads
// of a block. Memory is read and written in packs of 16 bytes where every pointer allows it; links
// of the LL protocols in their own units, data and flag together.
//
// Every thread loads all sources of its packs before it stores any, so a destination may be one of
// the sources.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/execute/cuda/element.h"
#include "collectives/execute/cuda/memory.h"

namespace tutti::device {

/// An operand, ready to use: memory, or a slot's part.
struct Target {
  std::byte* pointer = nullptr;
  std::uint64_t flag = 0;  // LL, LL128: what the units carry, the message's number
  std::uint64_t scalar = 0;
  std::uint32_t linked = 0;  // 1: a slot of LL or LL128
  Scaling scaling = Scaling::none;
  std::uint32_t use = 0;  // linked: the action's receive, for those who wait
};

struct MoveArguments {
  const Target* targets;  // destinations, then sources
  std::uint32_t destinations;
  std::uint32_t sources;
  std::uint64_t bytes;
  Reduction reduction;

  TUTTI_HD const Target& source(std::uint32_t i) const { return targets[destinations + i]; }
  /// One source, as it is.
  TUTTI_HD bool is_copy() const {
    return sources == 1 && source(0).scaling == Scaling::none && !reduction.divide_result;
  }
  /// What the addresses in memory have in common.
  TUTTI_HD std::uint32_t unit() const {
    std::uint64_t bits = 0;
    for (std::uint32_t i = 0; i < destinations + sources; ++i) {
      if (targets[i].linked == 0) bits |= reinterpret_cast<std::uintptr_t>(targets[i].pointer);
    }
    return unit_of(bits);
  }
};

// --- Memory only (Simple's slots are memory) -----------------------------------------------------

/// `kPacks` packs of `n` bytes, `stride` bytes apart, from `source`.
template <int kPacks>
TUTTI_HD void load_packs(Pair (&pack)[kPacks], const std::byte* from, std::uint64_t stride,
                         std::uint32_t n, std::uint32_t unit) {
  TUTTI_UNROLL
  for (int u = 0; u < kPacks; ++u) {
    pack[u] = load_pack(from + static_cast<std::uint64_t>(u) * stride, n, unit);
  }
}

template <int kPacks>
TUTTI_HD void store_packs(const Pair (&pack)[kPacks], std::byte* to, std::uint64_t stride,
                          std::uint32_t n, std::uint32_t unit) {
  TUTTI_UNROLL
  for (int u = 0; u < kPacks; ++u) {
    store_pack(to + static_cast<std::uint64_t>(u) * stride, pack[u], n, unit);
  }
}

/// The packs of one thread that begin at byte `at`.
template <int kPacks>
TUTTI_HD void copy_packs(const MoveArguments& m, std::uint64_t at, std::uint64_t stride,
                         std::uint32_t n, std::uint32_t unit) {
  const std::byte* const from = m.source(0).pointer;
  Pair pack[kPacks];
  load_packs(pack, from + at, stride, n, unit);
  for (std::uint32_t d = 0; d < m.destinations; ++d) {
    std::byte* const to = m.targets[d].pointer;
    // In place, a copy onto itself is nothing to do; others may be reading it.
    if (to != from) store_packs(pack, to + at, stride, n, unit);
  }
}

template <class E, int kPacks>
TUTTI_HD void reduce_packs(const MoveArguments& m, std::uint64_t at, std::uint64_t stride,
                           std::uint32_t n, std::uint32_t unit) {
  const std::uint32_t divisor = m.reduction.divisor;
  Pair pack[kPacks];
  Widened<E, 2> sum[kPacks];
  const Target& first = m.source(0);
  load_packs(pack, first.pointer + at, stride, n, unit);
  TUTTI_UNROLL
  for (int u = 0; u < kPacks; ++u) sum[u].load(pack[u], first.scaling, first.scalar, divisor);
  for (std::uint32_t s = 1; s < m.sources; ++s) {
    const Target& source = m.source(s);
    load_packs(pack, source.pointer + at, stride, n, unit);
    TUTTI_UNROLL
    for (int u = 0; u < kPacks; ++u) {
      Widened<E, 2> next;
      next.load(pack[u], source.scaling, source.scalar, divisor);
      sum[u].reduce(next, m.reduction.kind);
    }
  }
  TUTTI_UNROLL
  for (int u = 0; u < kPacks; ++u) pack[u] = sum[u].stored(m.reduction);
  for (std::uint32_t d = 0; d < m.destinations; ++d) {
    store_packs(pack, m.targets[d].pointer + at, stride, n, unit);
  }
}

/// Calls `packs<kPacks>` and `packs<1>` for all bytes of a move.
template <int kPacks, class Many, class One>
TUTTI_HD void for_packs(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads,
                        const Many& many, const One& one) {
  const std::uint32_t unit = m.unit();
  const std::uint64_t stride = std::uint64_t{16} * threads;
  const std::uint64_t whole = m.bytes / 16 * 16;
  std::uint64_t at = std::uint64_t{16} * thread;
  if (unit == 16) {
    for (; at + (kPacks - 1) * stride < whole; at += kPacks * stride) many(at, stride);
  }
  for (; at < m.bytes; at += stride) {
    const std::uint64_t left = m.bytes - at;
    one(at, stride, left < 16 ? static_cast<std::uint32_t>(left) : 16, unit);
  }
}

template <class E>
TUTTI_HD void move_memory(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads) {
  // Several packs at once, to have as many loads under way as registers allow: a pack of narrow
  // elements fills more of them.
  constexpr int kPacksToReduce = sizeof(typename E::Storage) >= 4   ? 4
                                 : sizeof(typename E::Storage) == 2 ? 2
                                                                    : 1;
  constexpr int kPacksToCopy = 8;
  if (m.is_copy()) {
    for_packs<kPacksToCopy>(
        m, thread, threads,
        [&](std::uint64_t at, std::uint64_t stride) {
          copy_packs<kPacksToCopy>(m, at, stride, 16, 16);
        },
        [&](std::uint64_t at, std::uint64_t stride, std::uint32_t n, std::uint32_t unit) {
          copy_packs<1>(m, at, stride, n, unit);
        });
  } else {
    for_packs<kPacksToReduce>(
        m, thread, threads,
        [&](std::uint64_t at, std::uint64_t stride) {
          reduce_packs<E, kPacksToReduce>(m, at, stride, 16, 16);
        },
        [&](std::uint64_t at, std::uint64_t stride, std::uint32_t n, std::uint32_t unit) {
          reduce_packs<E, 1>(m, at, stride, n, unit);
        });
  }
}

// --- With links of LL or LL128 -------------------------------------------------------------------

/// One unit of a step: kWords words of data from every source to every destination. `load(target,
/// pack)` and `store(target, pack)` know where the unit lies; load may fail (false), and then
/// nothing is stored.
template <class E, int kWords, class Load, class Store>
TUTTI_HD bool move_unit(const MoveArguments& m, const Load& load, const Store& store) {
  Pair pack;
  bool fine = load(m.source(0), pack);
  if (!m.is_copy()) {
    Widened<E, kWords> sum;
    sum.load(pack, m.source(0).scaling, m.source(0).scalar, m.reduction.divisor);
    for (std::uint32_t s = 1; s < m.sources; ++s) {
      const Target source = m.source(s);
      // Also after a failure: the threads of a warp load together.
      fine = load(source, pack) && fine;
      Widened<E, kWords> next;
      next.load(pack, source.scaling, source.scalar, m.reduction.divisor);
      sum.reduce(next, m.reduction.kind);
    }
    pack = sum.stored(m.reduction);
  }
  if (!fine) return false;
  for (std::uint32_t d = 0; d < m.destinations; ++d) {
    if (m.is_copy() && m.targets[d].linked == 0 && m.targets[d].pointer == m.source(0).pointer) {
      continue;
    }
    store(m.targets[d], pack);
  }
  return true;
}

/// LL: 8 bytes of data in two words, each with its own flag. `wait(target)`: whether to look again.
template <class E, class Wait>
TUTTI_HD bool move_ll(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads,
                      Wait&& wait) {
  const std::uint32_t unit = m.unit();
  for (std::uint64_t i = thread; i * 8 < m.bytes; i += threads) {
    const std::uint64_t left = m.bytes - i * 8;
    const std::uint32_t n = left < 8 ? static_cast<std::uint32_t>(left) : 8;
    const auto load = [&](const Target& t, Pair& pack) {
      if (t.linked == 0) {
        pack = load_pack(t.pointer + i * 8, n, unit);
        return true;
      }
      const auto* words = reinterpret_cast<const std::uint64_t*>(t.pointer) + i * 2;
      const auto flag = static_cast<std::uint32_t>(t.flag);
      // relaxed: data and flag are one word.
      Pair v = load_pair(words);
      while (static_cast<std::uint32_t>(v.first >> 32) != flag ||
             static_cast<std::uint32_t>(v.second >> 32) != flag) {
        if (!wait(t)) return false;
        v = load_pair(words);
      }
      pack = {(v.first & 0xFFFFFFFFu) | v.second << 32, 0};
      return true;
    };
    const auto store = [&](const Target& t, Pair pack) {
      if (t.linked == 0) return store_pack(t.pointer + i * 8, pack, n, unit);
      auto* words = reinterpret_cast<std::uint64_t*>(t.pointer) + i * 2;
      const std::uint64_t flag = t.flag << 32;
      store_pair(words, {(pack.first & 0xFFFFFFFFu) | flag, pack.first >> 32 | flag});
    };
    if (!move_unit<E, 1>(m, load, store)) return false;
  }
  return true;
}

/// LL128: lines of 16 words, the last one the flag. On the device eight threads carry a line, 16
/// bytes each, in one instruction, which the hardware keeps together; on the host one thread
/// carries all eight parts, the flag last with release.
template <class E, class Wait>
TUTTI_HD bool move_ll128(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads,
                         Wait&& wait) {
  constexpr std::uint32_t kParts = 8;
  constexpr std::uint32_t kData = 120;
  constexpr std::uint32_t kPartsOfThread = TUTTI_ON_DEVICE ? 1 : kParts;
  constexpr std::uint32_t kThreadsOfLine = kParts / kPartsOfThread;
  const std::uint32_t unit = m.unit();
  const std::uint64_t lines = (m.bytes + kData - 1) / kData;
  const std::uint32_t stride = threads / kThreadsOfLine;
  bool fine = true;
  // All threads of a warp (four lines) go round together.
  const std::uint32_t first = thread / kThreadsOfLine;
  const std::uint32_t together = TUTTI_ON_DEVICE ? first / 4 * 4 : first;
  for (std::uint64_t group = together; group < lines; group += stride) {
    const std::uint64_t line = group + (first - together);
    const bool mine = line < lines;
    for (std::uint32_t k = 0; k < kPartsOfThread; ++k) {
      const std::uint32_t part = TUTTI_ON_DEVICE ? thread % kParts : k;
      const std::uint64_t at = line * kData + part * 16;
      const std::uint64_t left = mine && at < m.bytes ? m.bytes - at : 0;
      const std::uint32_t room = part == kParts - 1 ? 8 : 16;
      const std::uint32_t n = left < room ? static_cast<std::uint32_t>(left) : room;
      const auto load = [&](const Target& t, Pair& pack) {
        if (t.linked == 0) {
          pack = n > 0 ? load_pack(t.pointer + at, n, unit) : Pair{};
          return true;
        }
        const auto* words = reinterpret_cast<const std::uint64_t*>(t.pointer) + line * 16;
#if TUTTI_ON_DEVICE
        const bool watches = mine && part == kParts - 1;
        Pair v{};
        bool again = true;
        while (__any_sync(0xFFFFFFFFu, again)) {
          if (mine) v = load_pair(words + part * 2);
          again = watches && v.second != t.flag;
          const bool stop = again && !wait(t);
          if (__any_sync(0xFFFFFFFFu, stop)) return false;
        }
        pack = v;
#else
        // acquire, paired with the release below: the line's other words are there.
        while (load_acquire(words + 15) != t.flag) {
          if (!wait(t)) return false;
        }
        pack = load_pair(words + part * 2);
#endif
        return true;
      };
      const auto store = [&](const Target& t, Pair pack) {
        if (t.linked == 0) {
          if (n > 0) store_pack(t.pointer + at, pack, n, unit);
          return;
        }
#if TUTTI_ON_DEVICE
        __syncwarp();  // so that the stores of a line leave in one instruction
#endif
        if (!mine) return;
        auto* words = reinterpret_cast<std::uint64_t*>(t.pointer) + line * 16 + part * 2;
        if (part == kParts - 1) pack.second = t.flag;
#if TUTTI_ON_DEVICE
        store_pair(words, pack);
#else
        store_relaxed(words, pack.first);
        if (part == kParts - 1) {
          store_release(words + 1, pack.second);
        } else {
          store_relaxed(words + 1, pack.second);
        }
#endif
      };
      fine = move_unit<E, 2>(m, load, store) && fine;
      if (!fine) break;
    }
    // Uniform in a warp: its threads fail together.
    if (!fine) return false;
  }
  return true;
}

}  // namespace tutti::device

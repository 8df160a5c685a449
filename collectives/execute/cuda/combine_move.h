// The device combine: destinations <- combine(sources) for bytes that lie together in memory, by
// all threads of a block; combine_links.h has links of LL and LL128. Memory is read and written in
// packs of 16 bytes where every pointer allows it.
//
// Every thread loads all sources of its packs before it stores any, so a destination may be one of
// the sources. It has up to eight loads under way, as many as the memory of a GPU wants to see of
// 512 threads; what is rare (other operators than sums, divisors that are no powers of two, odd
// addresses) goes a pack at a time instead, which keeps the kernel small.
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

  /// Accesses of that many bytes are aligned, 16 at most.
  TUTTI_HD std::uint32_t unit() const { return unit_of(reinterpret_cast<std::uintptr_t>(pointer)); }
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
  /// Whether packs of 16 bytes are aligned everywhere.
  TUTTI_HD bool is_aligned() const {
    std::uint64_t bits = 0;
    TUTTI_NO_UNROLL
    for (std::uint32_t i = 0; i < destinations + sources; ++i) {
      bits |= reinterpret_cast<std::uintptr_t>(targets[i].pointer);
    }
    return bits % 16 == 0;
  }
};

inline constexpr std::uint32_t kLoads = 8;  // of a thread, under way at once

/// Whole packs of a copy.
TUTTI_HD void copy_packs(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads) {
  const std::byte* const from = m.source(0).pointer;
  const std::uint64_t stride = std::uint64_t{16} * threads;
  const std::uint64_t whole = m.bytes & ~std::uint64_t{15};
  TUTTI_NO_UNROLL
  for (std::uint64_t at = std::uint64_t{16} * thread; at < whole; at += kLoads * stride) {
    Pair pack[kLoads];
    TUTTI_UNROLL
    for (std::uint32_t u = 0; u < kLoads; ++u) {
      if (at + u * stride < whole) pack[u] = load_16(from + at + u * stride);
    }
    TUTTI_NO_UNROLL
    for (std::uint32_t d = 0; d < m.destinations; ++d) {
      std::byte* const to = m.targets[d].pointer;
      // In place, a copy onto itself is nothing to do; others may be reading it.
      if (to == from) continue;
      TUTTI_UNROLL
      for (std::uint32_t u = 0; u < kLoads; ++u) {
        if (at + u * stride < whole) store_16(to + at + u * stride, pack[u]);
      }
    }
  }
}

/// Whether sum_packs() does this move.
template <class E>
TUTTI_HD bool is_plain_sum(const MoveArguments& m) {
  bool plain = m.sources <= kLoads && !m.reduction.divide_result && is_sum(m.reduction.kind);
  TUTTI_NO_UNROLL
  for (std::uint32_t s = 0; s < m.sources; ++s) {
    plain = plain && has_factor(m.source(s).scaling, m.reduction.divisor);
  }
  return plain;
}

/// Whole packs of a sum of at most eight sources. The loads are eight packs of one source, four of
/// two, two of four, or one of eight: load j is of source j mod 2^k, and of pack j / 2^k.
template <class E>
TUTTI_HD void sum_packs(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads) {
  const std::uint64_t stride = std::uint64_t{16} * threads;
  const std::uint64_t whole = m.bytes & ~std::uint64_t{15};
  const std::uint32_t k = m.sources > 4 ? 3 : m.sources > 2 ? 2 : m.sources > 1 ? 1 : 0;
  const std::uint32_t last = (1u << k) - 1;
  bool scaled = false;
  TUTTI_NO_UNROLL
  for (std::uint32_t i = 0; i < m.sources; ++i) {
    scaled = scaled || m.source(i).scaling != Scaling::none;
  }
  TUTTI_NO_UNROLL
  for (std::uint64_t at = std::uint64_t{16} * thread; at < whole; at += (kLoads >> k) * stride) {
    Pair pack[kLoads];
    TUTTI_UNROLL
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint64_t here = at + (j >> k) * stride;
      if ((j & last) < m.sources && here < whole) {
        pack[j] = load_16(m.source(j & last).pointer + here);
      }
    }
    Widened<E, 2> sum{};
    const auto take = [&](std::uint32_t j, const Pair& p) {
      Widened<E, 2> next;
      next.widen(p);
      const bool is_there = (j & last) < m.sources;
      if (scaled && is_there) {
        const Target& source = m.source(j & last);
        if (source.scaling != Scaling::none) {
          next.multiply(factor_of<E>(source.scaling, source.scalar, m.reduction.divisor));
        }
      }
      if ((j & last) == 0) {
        sum = next;
      } else if (is_there) {
        sum.add(next);
      }
      const std::uint64_t here = at + (j >> k) * stride;
      if ((j & last) != last || here >= whole) return;
      const Pair result = sum.narrowed();
      TUTTI_NO_UNROLL
      for (std::uint32_t d = 0; d < m.destinations; ++d) {
        store_16(m.targets[d].pointer + here, result);
      }
    };
    if constexpr (sizeof(typename E::Storage) >= 4) {
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kLoads; ++j) take(j, pack[j]);
    } else {
      // Many elements: once, in a loop, where packs move up, as no variable numbers a register.
      TUTTI_NO_UNROLL
      for (std::uint32_t j = 0; j < kLoads; ++j) {
        take(j, pack[0]);
        TUTTI_UNROLL
        for (std::uint32_t i = 0; i + 1 < kLoads; ++i) pack[i] = pack[i + 1];
      }
    }
  }
}

/// Bytes from `first` on, whatever the operator, the scaling and the addresses: a pack at a time.
template <class E>
TUTTI_COLD void move_packs(const MoveArguments m, std::uint64_t first, std::uint32_t thread,
                           std::uint32_t threads) {
  const bool is_copy = m.is_copy();
  TUTTI_NO_UNROLL
  for (std::uint64_t at = first + std::uint64_t{16} * thread; at < m.bytes;
       at += std::uint64_t{16} * threads) {
    const std::uint64_t left = m.bytes - at;
    const std::uint32_t n = left < 16 ? static_cast<std::uint32_t>(left) : 16;
    Pair pack = load_pack(m.source(0).pointer + at, n, m.source(0).unit());
    if (!is_copy) {
      Widened<E, 2> sum{};
      TUTTI_NO_UNROLL
      for (std::uint32_t s = 0;;) {
        Widened<E, 2> next;
        next.widen(pack);
        next.scale(m.source(s).scaling, m.source(s).scalar, m.reduction.divisor);
        sum.fold(next, s == 0, m.reduction.kind);
        if (++s == m.sources) break;
        pack = load_pack(m.source(s).pointer + at, n, m.source(s).unit());
      }
      pack = sum.stored(m.reduction);
    }
    TUTTI_NO_UNROLL
    for (std::uint32_t d = 0; d < m.destinations; ++d) {
      const Target& to = m.targets[d];
      if (is_copy && to.pointer == m.source(0).pointer) continue;
      store_pack(to.pointer + at, pack, n, to.unit());
    }
  }
}

/// Every operand is memory (Simple's slots are).
template <class E>
TUTTI_HD void move_memory(const MoveArguments& m, std::uint32_t thread, std::uint32_t threads) {
  std::uint64_t done = 0;
  if (m.is_aligned()) {
    if (m.is_copy()) {
      copy_packs(m, thread, threads);
      done = m.bytes & ~std::uint64_t{15};
    } else if (is_plain_sum<E>(m)) {
      sum_packs<E>(m, thread, threads);
      done = m.bytes & ~std::uint64_t{15};
    }
  }
  if (done < m.bytes) move_packs<E>(m, done, thread, threads);
}

}  // namespace tutti::device

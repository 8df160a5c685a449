// The device combine where every operand is memory, for what moves much: destinations <-
// combine(sources) in packs of 16 bytes, by all threads of a block. Copies, and sums of up to eight
// sources, with aligned pointers; combine_links.h has all else.
//
// Every thread loads all sources of its packs before it stores any, so a destination may be one of
// the sources. It has eight loads under way, as many as the memory of a GPU wants to see of 512
// threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "execute/cuda/canonical_order.h"
#include "execute/cuda/element.h"
#include "execute/cuda/memory.h"

namespace tutti::device {

/// An operand, ready to use: memory, or a slot's part.
struct alignas(16) Target {
  std::byte* pointer = nullptr;
  std::uint64_t flag = 0;    // of a slot of LL or LL128: what its units carry, the message's number
  std::uint64_t factor = 0;  // packed(); 1 where nothing is scaled
  Scaling scaling = Scaling::none;
  std::uint32_t use = 0;  // of such a slot: 1 + the action's receive, for the wait

  TUTTI_HD bool is_slot() const { return use != 0; }
  /// Accesses of that many bytes are aligned, 16 at most.
  TUTTI_HD std::uint32_t unit() const { return unit_of(reinterpret_cast<std::uintptr_t>(pointer)); }

  /// Whether `n` bytes at a multiple of 8 are one access.
  TUTTI_HD bool has_word(std::uint32_t n) const { return n == 8 && is_at_multiple_of(8); }
  TUTTI_HD bool is_at_multiple_of(std::uint32_t power_of_two) const {
    return (reinterpret_cast<std::uintptr_t>(pointer) & (power_of_two - 1)) == 0;
  }

  /// A source as it is.
  template <class E>
  TUTTI_HD void leave() {
    scaling = Scaling::none;
    factor = packed(typename E::Wide{1});
  }
  /// A source with a factor: an element with the bits of `scalar`.
  template <class E>
  TUTTI_HD void multiply(std::uint64_t scalar) {
    using Storage = typename E::Storage;
    scaling = Scaling::factor;
    factor = packed(E::widen(unpacked<Storage>(scalar)));
  }
  /// A source of floats that is divided.
  template <class E>
  TUTTI_HD void divide(std::uint32_t divisor) {
    using Wide = typename E::Wide;
    scaling = (divisor & (divisor - 1)) == 0 ? Scaling::factor : Scaling::divide;
    factor = packed(power_of_two<Wide>(-lowest_bit(divisor)));
  }
};

/// Blocks that share a move of memory: each of their warps takes the next turn, so that none waits
/// for a slower one, and at any time all are at one place of the memory, which it likes. The turns
/// of an operation are counted through all its moves: one that a warp has drawn in vain is the next
/// move's. Of a warp; written by its first thread.
struct Turns {
  std::uint32_t first;  // of the move at hand
  std::uint32_t next;   // that the warp has drawn
};

struct MoveArguments {
  const Target* targets;  // destinations, then sources
  std::uint32_t destinations;
  std::uint32_t sources;
  std::uint32_t bytes;  // half of what 32 bits count at most, for offsets past the end
  // Several blocks share out a move of memory: by turns, and of what is not whole packs this one
  // takes each of `parts` rounds in turn, from the `part`-th on.
  Turns* turns = nullptr;
  std::uint64_t* counter = nullptr;  // of turns: State::turns
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
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

/// What sum_packs() does, if anything.
enum class Sum : std::uint32_t { none, copy, in_turn, canonical };

template <class E>
TUTTI_HD Sum sum_of(const MoveArguments& m) {
  const Reduction& r = m.reduction;
  if (m.is_copy()) return Sum::copy;
  if (m.sources > kLoads || !is_sum(r.kind)) return Sum::none;
  bool divides = false;
  bool scales = false;
  TUTTI_NO_UNROLL
  for (std::uint32_t s = 0; s < m.sources; ++s) {
    divides = divides || m.source(s).scaling == Scaling::divide;
    scales = scales || m.source(s).scaling != Scaling::none;
  }
  if (divides) return Sum::none;
  if constexpr (kInCanonicalOrder<E>) {
    // Of an average by a power of two the sum is multiplied; products would have to be rounded.
    const bool by_factor = (r.divisor & (r.divisor - 1)) == 0;
    if (scales || m.sources == 1 || (r.divide_result && !by_factor)) return Sum::none;
    return m.sources > 3 || r.divide_result ? Sum::canonical : Sum::in_turn;
  }
  return r.divide_result ? Sum::none : Sum::in_turn;
}

/// The canonical sum of two to eight sources of each pack, which come as sum_packs() has loaded
/// them: two together, and then a tree of these. Of narrow types it takes the packs' first words,
/// and then their second ones, as a tree of whole packs would be more registers than there are.
template <class E>
TUTTI_HD void sum_canonically(const MoveArguments& m, Pair (&pack)[kLoads], std::uint32_t k,
                              std::uint32_t at, std::uint32_t stride, std::uint32_t whole) {
  using Wide = typename E::Wide;
  constexpr std::uint32_t kWords = sizeof(typename E::Storage) < 4 ? 1 : 2;
  const std::uint32_t last = (1u << k) - 1;
  TUTTI_NO_UNROLL
  for (std::uint32_t done = 0; done < 2; done += kWords) {
    CanonicalTree<Widened<E, 8 * kWords>, 2> tree;
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < kLoads; first += 2) {
      const std::uint32_t s = first & last;
      const std::uint32_t here = at + (first >> k) * stride;
      Widened<E, 8 * kWords> sum{};
      sum.widen(done == 0 ? pack[0] : Pair{pack[0].second, 0});
      if (s + 1 < m.sources) {
        Widened<E, 8 * kWords> next;
        next.widen(done == 0 ? pack[1] : Pair{pack[1].second, 0});
        sum.add(next);
      }
      const bool ends = s + 2 == (m.sources + 1) / 2 * 2;
      if (s < m.sources) tree.add(sum, s / 2, ends, false);
      if (ends && here < whole) {
        if (m.reduction.divide_result) {
          sum.multiply(power_of_two<Wide>(-lowest_bit(m.reduction.divisor)));
        }
        Pair result = sum.narrowed();
        if (kWords == 1 && done == 0) {
          pack[0].first = result.first;  // until its other half is there
        } else {
          if (kWords == 1) result = {pack[0].first, result.first};
          TUTTI_NO_UNROLL
          for (std::uint32_t d = 0; d < m.destinations; ++d) {
            store_16(m.targets[d].pointer + here, result);
          }
        }
      }
      const Pair a = pack[0];
      const Pair b = pack[1];
      TUTTI_UNROLL
      for (std::uint32_t i = 0; i + 2 < kLoads; ++i) pack[i] = pack[i + 2];
      pack[kLoads - 2] = a;
      pack[kLoads - 1] = b;
    }
  }
}

/// Whole packs of a copy, or of a sum of at most eight sources. The loads are eight packs of one
/// source, four of two, two of four, or one of eight: load j is of source j mod 2^k, and of pack
/// j / 2^k. Then they are summed a few at a time, and the others move up, as no variable numbers a
/// register.
template <class E, bool kDraws, class Block>
TUTTI_HD void sum_packs(Block& block, const MoveArguments& m, Sum how) {
  constexpr std::uint32_t kAtATime = sizeof(typename E::Storage) >= 2 ? 2 : 1;
  const std::uint32_t stride = 16 * block.warp();
  const std::uint32_t whole = m.bytes & ~15u;
  const std::uint32_t k = m.sources > 4 ? 3 : m.sources > 2 ? 2 : m.sources > 1 ? 1 : 0;
  const std::uint32_t last = (1u << k) - 1;
  bool scaled = false;
  TUTTI_NO_UNROLL
  for (std::uint32_t i = 0; i < m.sources; ++i) {
    scaled = scaled || m.source(i).scaling != Scaling::none;
  }
  const std::uint32_t round = (kLoads >> k) * stride;
  const bool drawn = kDraws && m.turns != nullptr;
  // The first thread's: it alone reads and writes m.turns.
  const std::uint32_t lane = block.thread() % block.warp();
  std::uint32_t next_turn = drawn && lane == 0 ? m.turns->next - m.turns->first : 0;
  std::uint32_t at = 16 * (block.thread() % block.warp()) +
                     (m.part * block.threads() + block.thread()) / block.warp() * round;
  TUTTI_NO_UNROLL
  for (;; at += m.parts * (block.threads() / block.warp()) * round) {
    if (drawn) {
      const std::uint32_t turns = (whole + round - 1) / round;
      const std::uint32_t turn = block.of_first(next_turn);
      if (turn >= turns) {
        if (lane == 0) m.turns->next = (m.turns->first += turns) + turn - turns;
        break;
      }
      next_turn = block.draw(m.counter);  // while this turn is under way
      if (lane == 0) next_turn -= m.turns->first;
      at = turn * round + 16 * lane;
    } else if (at >= whole) {
      break;
    }
    Pair pack[kLoads];
    TUTTI_UNROLL
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t here = at + (j >> k) * stride;
      if ((j & last) < m.sources && here < whole) {
        pack[j] = load_16(m.source(j & last).pointer + here);
      }
    }
    if (how == Sum::copy) {
      TUTTI_NO_UNROLL
      for (std::uint32_t d = 0; d < m.destinations; ++d) {
        std::byte* const to = m.targets[d].pointer;
        // In place, a copy onto itself is nothing to do; others may be reading it.
        if (to == m.source(0).pointer) continue;
        TUTTI_UNROLL
        for (std::uint32_t u = 0; u < kLoads; ++u) {
          if (at + u * stride < whole) store_16(to + at + std::size_t{u} * stride, pack[u]);
        }
      }
      continue;
    }
    if constexpr (kInCanonicalOrder<E>) {
      if (how == Sum::canonical) {
        sum_canonically<E>(m, pack, k, at, stride, whole);
        continue;
      }
    }
    Widened<E, 16> sum{};
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < kLoads; first += kAtATime) {
      TUTTI_UNROLL
      for (std::uint32_t i = 0; i < kAtATime; ++i) {
        const std::uint32_t j = first + i;
        const std::uint32_t s = j & last;
        const std::uint32_t here = at + (j >> k) * stride;
        if (s < m.sources) {
          Widened<E, 16> next;
          next.widen(pack[i]);
          if (scaled) next.multiply(unpacked<typename E::Wide>(m.source(s).factor));
          if (s == 0) {
            sum = next;
          } else {
            sum.add(next);
          }
        }
        if (s != last || here >= whole) continue;
        const Pair result = sum.narrowed();
        TUTTI_NO_UNROLL
        for (std::uint32_t d = 0; d < m.destinations; ++d) {
          store_16(m.targets[d].pointer + here, result);
        }
      }
      TUTTI_UNROLL
      for (std::uint32_t i = 0; i + kAtATime < kLoads; ++i) pack[i] = pack[i + kAtATime];
    }
  }
}

/// The bytes from the first on that are done; the rest is for move_words().
template <class E, bool kDraws, class Block>
TUTTI_HD std::uint32_t move_packs(Block& block, const MoveArguments& m) {
  if (!m.is_aligned()) return 0;
  const Sum how = sum_of<E>(m);
  if (how == Sum::none) return 0;
  sum_packs<E, kDraws>(block, m, how);
  return m.bytes & ~15u;
}

}  // namespace tutti::device

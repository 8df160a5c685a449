// The device combine where an operand is a message of LL or LL128: data and flag in one access, so
// that a thread that finds the flag has the data. Also everything else that combine_move.h leaves,
// because LL's loop can do it: any operator, division, odd addresses, what remains at the end. A
// Block (lane_links.h) knows what a warp can do.
//
// Nothing here is called out of line: around a call registers have to be saved. Instead, a loop
// does the rare cases, which takes elements or words one by one. Each of them comes to the first
// place for that, because no variable can number a register.
#pragma once

#include "execute/cuda/combine_move.h"

namespace tutti::device {

// --- LL, and whatever there is -------------------------------------------------------------------

/// From byte `first` on, 8 bytes at a time; in LL these are two words, each with its own flag.
/// `wait` says whether to look again for a target; each wait begins a new one (lane_links.h).
/// `kSlots`: whether targets may be slots of LL.
template <class E, bool kSlots = true, class Block, class Wait>
TUTTI_HD bool move_words(Block& block, const MoveArguments& m, std::uint32_t first,
                         const Wait& wait) {
  using Wide = typename E::Wide;
  constexpr bool kTree = kInCanonicalOrder<E>;
  // A tree of all elements of a word would be more registers than there are: it takes two at a
  // time.
  constexpr int kPart =
      kTree && sizeof(typename E::Storage) < 4 ? 2 * sizeof(typename E::Storage) : 8;
  constexpr std::uint32_t kParts = 8 / kPart;
  using Tree = CanonicalTree<Widened<E, kPart>, kTree ? kMostLevels : 0>;
  const bool is_copy = m.is_copy();
  const bool product = m.reduction.kind == ReduceKind::prod;
  const bool is_tree = kTree && m.sources > 3 && (is_sum(m.reduction.kind) || product);
  TUTTI_NO_UNROLL
  for (std::uint32_t at = first + (m.part * block.threads() + block.thread()) * 8; at < m.bytes;
       at += m.parts * block.threads() * 8) {
    const std::uint32_t n = m.bytes - at < 8 ? m.bytes - at : 8;
    Widened<E, 8> sum{};
    [[maybe_unused]] Tree tree;
    std::uint64_t result = 0;
    auto waiting = wait.begin();
    [[maybe_unused]] std::uint32_t part = 0;
    TUTTI_NO_UNROLL
    for (std::uint32_t s = 0; s < m.sources;) {
      // All loads, and only then the flags: all data that are there already take one trip together.
      Pair pack[kLoads];
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kLoads; ++k) {
        if (s + k >= m.sources) continue;
        const Target& t = m.source(s + k);
        // relaxed: data and flag are one word.
        if (kSlots && t.is_slot()) {
          pack[k] = load_pair(reinterpret_cast<const std::uint64_t*>(t.pointer + 2 * at));
        } else if (t.has_word(n)) {
          pack[k].first = load<std::uint64_t>(t.pointer + at);
        }
      }
      // As far as they are there. The rest is loaded again, all together.
      const std::uint32_t end = m.sources - s < kLoads ? m.sources : s + kLoads;
      TUTTI_NO_UNROLL
      for (; s < end; ++s) {
        const Target& t = m.source(s);
        result = pack[0].first;
        if (kSlots && t.is_slot()) {
          const auto flag = static_cast<std::uint32_t>(t.flag);
          if (static_cast<std::uint32_t>(result >> 32) != flag ||
              static_cast<std::uint32_t>(pack[0].second >> 32) != flag) {
            break;
          }
          result = (result & 0xFFFFFFFFu) | pack[0].second << 32;
        } else if (!t.has_word(n)) {
          result = load_odd(t.pointer + at, n, t.unit());
        }
        if (is_copy) continue;
        Widened<E, 8> next;
        next.widen({result, 0});
        const auto factor = unpacked<Wide>(t.factor);
        if constexpr (kTree) {
          if (t.scaling == Scaling::factor) next.multiply_and_round(factor);
          if (is_tree) {
            auto some = next.template part<kPart>(part);
            tree.add(some, s, s + 1 == m.sources, product);
            sum.set_part(part, some);
          } else {
            sum.fold(next, s == 0, m.reduction);
          }
        } else {
          if (t.scaling == Scaling::factor) next.multiply(factor);
          if constexpr (std::is_floating_point_v<Wide>) {
            if (t.scaling == Scaling::divide) next.divide(m.reduction);
          }
          sum.fold(next, s == 0, m.reduction);
        }
        TUTTI_UNROLL
        for (std::uint32_t i = 0; i + 1 < kLoads; ++i) pack[i] = pack[i + 1];
      }
      if (s < end && !wait.again(waiting, m.source(s))) return false;
      // The sources are there: the next elements of the same word.
      if (kParts > 1 && is_tree && s == m.sources && ++part < kParts) s = 0;
    }
    if (!is_copy) {
      if constexpr (kTree || !std::is_floating_point_v<Wide>) {
        if (m.reduction.divide_result) sum.divide(m.reduction);
      }
      result = sum.narrowed().first;
    }
    TUTTI_NO_UNROLL
    for (std::uint32_t d = 0; d < m.destinations; ++d) {
      const Target& t = m.targets[d];
      if (kSlots && t.is_slot()) {
        const std::uint64_t flag = t.flag << 32;
        block.store_pair(reinterpret_cast<std::uint64_t*>(t.pointer) + at / 8 * 2,
                         {(result & 0xFFFFFFFFu) | flag, result >> 32 | flag});
      } else if (is_copy && t.pointer == m.source(0).pointer) {
        continue;
      } else if (t.has_word(n)) {
        store(t.pointer + at, result);
      } else {
        store_odd(t.pointer + at, result, n, t.unit());
      }
    }
  }
  return true;
}

/// A plain move (plan_block.h) whose sources, kMost at most, are copied or summed: every short call
/// takes its way, so it has no case that such a call has not.
template <class E, std::uint32_t kMost, class Block, class Wait>
TUTTI_HD bool move_plain_words(Block& block, const Target* to, std::uint32_t destinations,
                               std::uint32_t sources, std::uint32_t bytes, const Wait& wait) {
  const Target* const from = to + destinations;
  TUTTI_NO_UNROLL
  for (std::uint32_t at = block.thread() * 8; at < bytes; at += block.threads() * 8) {
    std::uint64_t word[kMost]{};
    auto waiting = wait.begin();
    TUTTI_NO_UNROLL
    for (;;) {
      // All loads, and only then the flags: all data that are there already take one trip together.
      Pair pack[kMost];
      TUTTI_UNROLL
      for (std::uint32_t s = 0; s < kMost; ++s) {
        if (kMost > 1 && s >= sources) continue;
        const Target& t = from[s];
        // relaxed: data and flag are one word.
        if (t.is_slot()) {
          pack[s] = load_pair(reinterpret_cast<const std::uint64_t*>(t.pointer + 2 * at));
        } else {
          pack[s].first = load<std::uint64_t>(t.pointer + at);
        }
      }
      std::uint32_t missing = kMost;
      TUTTI_UNROLL
      for (std::uint32_t s = kMost; s-- > 0;) {
        if (kMost > 1 && s >= sources) continue;
        const Target& t = from[s];
        word[s] = pack[s].first;
        if (!t.is_slot()) continue;
        const auto flag = static_cast<std::uint32_t>(t.flag);
        if (static_cast<std::uint32_t>(pack[s].first >> 32) != flag ||
            static_cast<std::uint32_t>(pack[s].second >> 32) != flag) {
          missing = s;
        }
        word[s] = (pack[s].first & 0xFFFFFFFFu) | pack[s].second << 32;
      }
      if (missing == kMost) break;
      if (!wait.again(waiting, from[missing])) return false;
    }
    std::uint64_t result = word[0];
    if constexpr (kMost > 1) {
      Widened<E, 8> sum;
      sum.widen({word[0], 0});
      TUTTI_UNROLL
      for (std::uint32_t s = 1; s < kMost; ++s) {
        if (s >= sources) continue;
        Widened<E, 8> next;
        next.widen({word[s], 0});
        sum.add(next);
      }
      result = sum.narrowed().first;
    }
    constexpr std::uint32_t kAtATime = 4;
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < destinations; first += kAtATime) {
      TUTTI_UNROLL
      for (std::uint32_t k = 0; k < kAtATime; ++k) {
        if (first + k >= destinations) continue;
        const Target& t = to[first + k];
        if (t.is_slot()) {
          const std::uint64_t flag = t.flag << 32;
          block.store_pair(reinterpret_cast<std::uint64_t*>(t.pointer) + at / 8 * 2,
                           {(result & 0xFFFFFFFFu) | flag, result >> 32 | flag});
        } else if (kMost > 1 || t.pointer != from[0].pointer) {
          store(t.pointer + at, result);
        }
      }
    }
  }
  return true;
}

/// Combines any number of sources that a plain move may have.
template <class E, class Block, class Wait>
TUTTI_HD bool move_plain_words(Block& block, const Target* to, std::uint32_t destinations,
                               std::uint32_t sources, std::uint32_t bytes, const Wait& wait) {
  if (sources == 1) return move_plain_words<E, 1>(block, to, destinations, 1, bytes, wait);
  if (sources == 2) return move_plain_words<E, 2>(block, to, destinations, 2, bytes, wait);
  return move_plain_words<E, kPlainSources>(block, to, destinations, sources, bytes, wait);
}

// --- LL128 ---------------------------------------------------------------------------------------

/// Lines of 128 bytes come in pairs, which carry 240 bytes of data. Eight threads carry a pair,
/// each 16 bytes of either line in one instruction, which the hardware keeps together:
///
///     line        thread 0 ..... 6        thread 7
///     first       bytes 0 to 111          bytes 224 to 231, flag
///     second      bytes 112 to 223        bytes 232 to 239, flag
///
/// So everybody's data in memory are whole packs, at multiples of 16 bytes. A reduction is a sum,
/// with factors on its sources at most (Traits::sums), so all of it stays in registers.
inline constexpr std::uint32_t kLinesData = 240;

/// A thread's part of the lines that it carries at once.
template <int kPairs>
struct LineParts {
  Pair pack[2 * kPairs];  // thread 7: the first of each pair alone

  /// `f(i, word)` for each word, of pack i / 2, one by one.
  template <class F>
  TUTTI_HD void each_word(const F& f) {
    TUTTI_NO_UNROLL
    for (int i = 0; i < 4 * kPairs; ++i) {
      std::uint64_t word = pack[0].first;
      f(i, word);
      TUTTI_UNROLL
      for (int k = 0; k < 2 * kPairs; ++k) {
        pack[k].first = pack[k].second;
        pack[k].second = k + 1 < 2 * kPairs ? pack[k + 1].first : word;
      }
    }
  }
};

template <class E, class Block, class Wait>
class LineMove {
  // As many as registers allow: a pack of narrow elements fills more of them.
  static constexpr int kPairs = sizeof(typename E::Storage) >= 2 ? 2 : 1;
  static constexpr int kPacks = 2 * kPairs;
  /// A sum to which the first source is added as all others are: fewer instructions, and, of two
  /// bytes, more registers than there are.
  static constexpr bool kStartsEmpty = sizeof(typename E::Storage) != 2;
  /// One pack after the other, as floats of one byte take many instructions.
  static constexpr bool kNarrowsInTurn =
      sizeof(typename E::Storage) == 1 && std::is_floating_point_v<typename E::Wide>;
  using Parts = LineParts<kPairs>;

 public:
  TUTTI_HD LineMove(Block& block, const MoveArguments& m, const Wait& wait)
      : block_(block),
        m_(m),
        wait_(wait),
        part_(block.thread() % 8),
        bytes_(m.bytes),
        pairs_((bytes_ + kLinesData - 1) / kLinesData),
        groups_(block.threads() / 8),
        is_copy_(m.is_copy()) {}

  TUTTI_HD bool run() {
    const std::uint32_t group = block_.thread() / 8;
    // All threads of a warp go round together, also those without a pair.
    const std::uint32_t first = group - group % (block_.warp() / 8);
    TUTTI_NO_UNROLL
    for (std::uint32_t at = first; at < pairs_; at += kPairs * groups_) {
      pair_ = at + group - first;
      Parts result{};
      if (!combine(result)) return false;
      TUTTI_NO_UNROLL
      for (std::uint32_t d = 0; d < m_.destinations; ++d) store(m_.targets[d], result);
    }
    return true;
  }

 private:
  TUTTI_HD bool combine(Parts& result) {
    Widened<E, 16> sum[kPacks]{};
    if constexpr (kStartsEmpty) {
      TUTTI_UNROLL
      for (int i = 0; i < kPacks; ++i) sum[i].clear();
    }
    TUTTI_NO_UNROLL
    for (std::uint32_t s = 0;; ++s) {
      // The next source is on its way while the one before it is waited for.
      Parts next{};
      if (s < m_.sources) request(m_.source(s), next);
      if (s > 0) {
        const Target& t = m_.source(s - 1);
        if (t.is_slot() && !settle(t, result)) return false;
        if (is_copy_) return true;
        TUTTI_UNROLL
        for (int i = 0; i < kPacks; ++i) {
          Widened<E, 16> value;
          value.widen(result.pack[i]);
          if (t.scaling != Scaling::none) value.multiply(unpacked<typename E::Wide>(t.factor));
          if constexpr (kStartsEmpty) {
            sum[i].add(value);
          } else if (s == 1) {
            sum[i] = value;
          } else {
            sum[i].add(value);
          }
        }
      }
      if (s == m_.sources) break;
      result = next;
    }
    if constexpr (kNarrowsInTurn) {
      TUTTI_NO_UNROLL
      for (int n = 0; n < kPacks; ++n) {
        const Pair narrowed = sum[0].narrowed();
        TUTTI_UNROLL
        for (int i = 0; i + 1 < kPacks; ++i) {
          sum[i] = sum[i + 1];
          result.pack[i] = result.pack[i + 1];
        }
        result.pack[kPacks - 1] = narrowed;
      }
    } else {
      TUTTI_UNROLL
      for (int i = 0; i < kPacks; ++i) result.pack[i] = sum[i].narrowed();
    }
    return true;
  }

  TUTTI_HD bool is_mine(int i) const { return pair_ + i / 2 * groups_ < pairs_; }
  TUTTI_HD std::uint64_t* words(const Target& t, std::uint32_t pair, int i) const {
    return reinterpret_cast<std::uint64_t*>(t.pointer) + (pair * 2 + i % 2) * 16 + part_ * 2;
  }
  /// Where pack `i` is in memory, and how many bytes there are of it.
  TUTTI_HD std::uint32_t place(int i, std::uint32_t& n) const {
    const std::uint32_t at = (here(pair_) + i / 2 * groups_) * kLinesData +
                             (part_ == 7 ? 224 : part_ * 16 + (i % 2 != 0 ? 112 : 0));
    const bool none = at >= bytes_ || !is_mine(i) || (part_ == 7 && i % 2 != 0);
    n = none ? 0 : bytes_ - at < 16 ? bytes_ - at : 16;
    return at;
  }
  /// Whether some pack of this thread is no whole one at a multiple of 16.
  TUTTI_HD bool is_odd(const Target& t) const {
    return !t.is_at_multiple_of(16) ||
           (bytes_ % 16 != 0 && pair_ + (kPairs - 1) * groups_ + 1 >= pairs_);
  }
  /// `f(at, n, i, word)` for each word of memory, n > 0 bytes from there on.
  template <class F>
  TUTTI_HD void each_odd_word(Parts& parts, const F& f) const {
    parts.each_word([&](int i, std::uint64_t& word) {
      std::uint32_t n = 0;
      const std::uint32_t at = place(i / 2, n) + i % 2 * 8;
      n = n < i % 2 * 8u ? 0 : n - i % 2 * 8;
      if (n > 0) f(at, n < 8 ? n : 8, word);
    });
  }

  TUTTI_HD void request(const Target& t, Parts& parts) const {
    if (t.is_slot()) return load_lines(t, parts);
    if (is_odd(t)) {
      const std::uint32_t unit = t.unit();
      return each_odd_word(parts, [&](std::uint32_t at, std::uint32_t n, std::uint64_t& word) {
        word = load_odd(t.pointer + at, n, unit);
      });
    }
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      std::uint32_t n = 0;
      const std::uint32_t at = place(i, n);
      if (n > 0) parts.pack[i] = load_16(t.pointer + at);
    }
  }

  /// A group without a pair loads the last pair as well: a load that depends on nothing is under
  /// way together with the others.
  TUTTI_HD void load_lines(const Target& t, Parts& parts) const {
    block_.converge();
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      const std::uint32_t pair = pair_ + i / 2 * groups_;
      parts.pack[i] = block_.load_line(words(t, pair < pairs_ ? pair : pairs_ - 1, i));
    }
  }

  /// Until all lines are there. False, for all threads of the warp, if that is in vain.
  TUTTI_HD bool settle(const Target& t, Parts& parts) const {
    auto waiting = wait_.begin();
    TUTTI_NO_UNROLL
    for (;;) {
      bool missing = false;
      TUTTI_UNROLL
      for (int i = 0; i < kPacks; ++i) missing = missing || parts.pack[i].second != t.flag;
      missing = missing && part_ == 7;
      if (!block_.any(missing)) break;
      const bool stop = missing && !wait_.again(waiting, t);
      if (block_.any(stop)) return false;
      load_lines(t, parts);
    }
    if (part_ != 7) return true;
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; i += 2) {
      parts.pack[i] = {parts.pack[i].first, parts.pack[i + 1].first};
    }
    return true;
  }

  TUTTI_HD void store(const Target& t, Parts& parts) const {
    if (!t.is_slot() && is_copy_ && t.pointer == m_.source(0).pointer) return;
    if (t.is_slot()) {
      block_.converge();
      TUTTI_UNROLL
      for (int i = 0; i < kPacks; ++i) {
        Pair pack = parts.pack[i];
        if (part_ == 7) {
          pack = {i % 2 == 0 ? parts.pack[i].first : parts.pack[i - 1].second, t.flag};
        }
        block_.store_line(is_mine(i) ? words(t, pair_ + i / 2 * groups_, i) : nullptr, pack);
      }
      return;
    }
    if (is_odd(t)) {
      const std::uint32_t unit = t.unit();
      return each_odd_word(parts, [&](std::uint32_t at, std::uint32_t n, std::uint64_t word) {
        store_odd(t.pointer + at, word, n, unit);
      });
    }
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      std::uint32_t n = 0;
      const std::uint32_t at = place(i, n);
      if (n > 0) store_16(t.pointer + at, parts.pack[i]);
    }
  }

  Block& block_;
  const MoveArguments& m_;
  const Wait& wait_;
  const std::uint32_t part_;
  const std::uint32_t bytes_;
  const std::uint32_t pairs_;
  const std::uint32_t groups_;
  const bool is_copy_;
  std::uint32_t pair_ = 0;  // the first of this thread's, this time round
};

/// By blocks of whole warps, of at least eight threads.
template <class E, class Block, class Wait>
TUTTI_HD bool move_lines(Block& block, const MoveArguments& m, const Wait& wait) {
  return LineMove<E, Block, Wait>(block, m, wait).run();
}

// --- Everything ----------------------------------------------------------------------------------

/// How the operands of a move are reached.
enum class Way : std::uint32_t { memory, words, lines };

/// Where every operand is memory.
template <class E, class Block, class Wait>
TUTTI_HD bool move_memory(Block& block, const MoveArguments& m, const Wait& wait) {
  const std::uint32_t done = move_packs<E, true>(block, m);
  return done == m.bytes || move_words<E, false>(block, m, done, wait);
}

template <class E, class Block, class Wait>
TUTTI_HD bool move(Block& block, const MoveArguments& m, Way way, const Wait& wait) {
  if (way == Way::lines) return move_lines<E>(block, m, wait);
  std::uint32_t done = 0;
  if (way == Way::memory) done = move_packs<E, false>(block, m);
  return done == m.bytes || move_words<E>(block, m, done, wait);
}

}  // namespace tutti::device

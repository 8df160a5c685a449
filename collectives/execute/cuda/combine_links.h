// The device combine where an operand is a message of LL or LL128: data and flag in one access, so
// that whoever finds the flag has the data. A Block (lane_links.h) knows what a warp can do.
#pragma once

#include "collectives/execute/cuda/combine_move.h"

namespace tutti::device {

// --- LL ------------------------------------------------------------------------------------------

/// 8 bytes of data in two words, each with its own flag. `wait(target)`: whether to look again.
template <class E, class Block, class Wait>
TUTTI_HD bool move_ll(Block& block, const MoveArguments& m, Wait&& wait) {
  const bool is_copy = m.is_copy();
  const auto bytes = static_cast<std::uint32_t>(m.bytes);  // a message's
  TUTTI_NO_UNROLL
  for (std::uint32_t at = block.thread() * 8; at < bytes; at += block.threads() * 8) {
    const std::uint32_t n = bytes - at < 8 ? bytes - at : 8;
    Widened<E, 1> sum{};
    Pair result;
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < m.sources; first += kLoads) {
      const std::uint32_t here = m.sources - first < kLoads ? m.sources - first : kLoads;
      // All loads, and only then the flags: what is there already takes one trip together.
      Pair pack[kLoads];
      std::uint32_t missing = (1u << here) - 1;
      do {
        TUTTI_UNROLL
        for (std::uint32_t k = 0; k < kLoads; ++k) {
          if ((missing >> k & 1) == 0) continue;
          const Target& t = m.source(first + k);
          // relaxed: data and flag are one word.
          if (t.linked != 0) {
            pack[k] = load_pair(reinterpret_cast<const std::uint64_t*>(t.pointer) + at / 8 * 2);
          } else {
            pack[k].first = load_word(t.pointer + at, n, t.unit());
          }
        }
        TUTTI_UNROLL
        for (std::uint32_t k = 0; k < kLoads; ++k) {
          if ((missing >> k & 1) == 0) continue;
          const Target& t = m.source(first + k);
          if (t.linked != 0) {
            const auto flag = static_cast<std::uint32_t>(t.flag);
            if (static_cast<std::uint32_t>(pack[k].first >> 32) != flag ||
                static_cast<std::uint32_t>(pack[k].second >> 32) != flag) {
              continue;
            }
            pack[k].first = (pack[k].first & 0xFFFFFFFFu) | pack[k].second << 32;
          }
          missing &= ~(1u << k);
        }
        if (missing != 0 && !wait(m.source(first + lowest_bit(missing)))) return false;
      } while (missing != 0);
      result = pack[0];
      if (is_copy) break;
      TUTTI_NO_UNROLL
      for (std::uint32_t k = 0; k < here; ++k) {
        const Target& t = m.source(first + k);
        Widened<E, 1> next;
        next.widen(pack[0]);
        next.scale(t.scaling, t.scalar, m.reduction.divisor);
        sum.fold(next, first + k == 0, m.reduction.kind);
        // Moved up, as registers cannot be numbered by a variable.
        TUTTI_UNROLL
        for (std::uint32_t i = 0; i + 1 < kLoads; ++i) pack[i].first = pack[i + 1].first;
      }
    }
    if (!is_copy) result = sum.stored(m.reduction);
    TUTTI_NO_UNROLL
    for (std::uint32_t d = 0; d < m.destinations; ++d) {
      const Target& t = m.targets[d];
      if (t.linked != 0) {
        const std::uint64_t flag = t.flag << 32;
        block.store_pair(reinterpret_cast<std::uint64_t*>(t.pointer) + at / 8 * 2,
                         {(result.first & 0xFFFFFFFFu) | flag, result.first >> 32 | flag});
      } else if (!is_copy || t.pointer != m.source(0).pointer) {
        store_word(t.pointer + at, result.first, n, t.unit());
      }
    }
  }
  return true;
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
/// whose sources have factors at most (Traits::sums), which keeps all of it in registers.
inline constexpr std::uint32_t kLinesData = 240;

/// A thread's part of the lines that it carries at once.
template <int kPairs>
struct LineParts {
  Pair pack[2 * kPairs];  // thread 7: the first of each pair alone
};

template <class E, class Block, class Wait>
class LineMove {
  // As many as registers allow: a pack of narrow elements fills more of them.
  static constexpr int kPairs = sizeof(typename E::Storage) >= 2 ? 2 : 1;
  static constexpr int kPacks = 2 * kPairs;
  using Parts = LineParts<kPairs>;

 public:
  TUTTI_HD LineMove(Block& block, const MoveArguments& m, Wait& wait)
      : block_(block),
        m_(m),
        wait_(wait),
        part_(block.thread() % 8),
        bytes_(static_cast<std::uint32_t>(m.bytes)),
        is_copy_(m.is_copy()) {}

  TUTTI_HD bool run() {
    const std::uint32_t pairs = (bytes_ + kLinesData - 1) / kLinesData;
    const std::uint32_t group = block_.thread() / 8;
    groups_ = block_.threads() / 8;
    // All threads of a warp go round together, also those without a pair.
    const std::uint32_t first = group - group % (block_.warp() / 8);
    TUTTI_NO_UNROLL
    for (std::uint32_t at = first; at < pairs; at += kPairs * groups_) {
      pair_ = at + group - first;
      pairs_ = pairs;
      Parts result{};
      if (!combine(result)) return false;
      TUTTI_NO_UNROLL
      for (std::uint32_t d = 0; d < m_.destinations; ++d) store(m_.targets[d], result);
    }
    return true;
  }

 private:
  TUTTI_HD bool combine(Parts& result) {
    Widened<E, 2> sum[kPacks]{};
    TUTTI_NO_UNROLL
    for (std::uint32_t s = 0;; ++s) {
      // The next source is on its way while the one before it is waited for.
      Parts next{};
      if (s < m_.sources) request(m_.source(s), next);
      if (s > 0) {
        const Target& t = m_.source(s - 1);
        if (t.linked != 0 && !settle(t, result)) return false;
        if (is_copy_) return true;
        TUTTI_UNROLL
        for (int i = 0; i < kPacks; ++i) {
          Widened<E, 2> value;
          value.widen(result.pack[i]);
          if (t.scaling != Scaling::none) {
            value.multiply(factor_of<E>(t.scaling, t.scalar, m_.reduction.divisor));
          }
          if (s == 1) {
            sum[i] = value;
          } else {
            sum[i].add(value);
          }
        }
      }
      if (s == m_.sources) break;
      result = next;
    }
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) result.pack[i] = sum[i].narrowed();
    return true;
  }

  TUTTI_HD bool is_mine(int i) const { return pair_ + i / 2 * groups_ < pairs_; }
  TUTTI_HD std::uint64_t* words(const Target& t, int i) const {
    const std::uint32_t line = (pair_ + i / 2 * groups_) * 2 + i % 2;
    return reinterpret_cast<std::uint64_t*>(t.pointer) + line * 16 + part_ * 2;
  }
  /// Where pack `i` is in memory, and how many bytes there are of it.
  TUTTI_HD std::uint32_t place(int i, std::uint32_t& n) const {
    const std::uint32_t at = (pair_ + i / 2 * groups_) * kLinesData +
                             (part_ == 7 ? 224 : part_ * 16 + (i % 2 != 0 ? 112 : 0));
    const bool none = at >= bytes_ || !is_mine(i) || (part_ == 7 && i % 2 != 0);
    n = none ? 0 : bytes_ - at < 16 ? bytes_ - at : 16;
    return at;
  }

  TUTTI_HD void request(const Target& t, Parts& parts) const {
    if (t.linked != 0) return load_lines(t, parts);
    const std::uint32_t unit = t.unit();
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      std::uint32_t n = 0;
      const std::uint32_t at = place(i, n);
      if (n == 16 && unit == 16) {
        parts.pack[i] = load_16(t.pointer + at);
      } else if (n > 0) {
        parts.pack[i] = load_odd(t.pointer + at, n, unit);
      }
    }
  }

  TUTTI_HD void load_lines(const Target& t, Parts& parts) const {
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      parts.pack[i] = block_.load_line(is_mine(i) ? words(t, i) : nullptr);
    }
  }

  /// Until all lines are there. False, for all threads of the warp, if that is in vain.
  TUTTI_HD bool settle(const Target& t, Parts& parts) const {
    TUTTI_NO_UNROLL
    for (;;) {
      bool missing = false;
      TUTTI_UNROLL
      for (int i = 0; i < kPacks; ++i) {
        missing = missing || (part_ == 7 && is_mine(i) && parts.pack[i].second != t.flag);
      }
      if (!block_.any(missing)) break;
      const bool stop = missing && !wait_(t);
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

  TUTTI_HD void store(const Target& t, const Parts& parts) const {
    if (t.linked == 0 && is_copy_ && t.pointer == m_.source(0).pointer) return;
    const std::uint32_t unit = t.unit();
    TUTTI_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      if (t.linked != 0) {
        Pair pack = parts.pack[i];
        if (part_ == 7) {
          pack = {i % 2 == 0 ? parts.pack[i].first : parts.pack[i - 1].second, t.flag};
        }
        block_.store_line(is_mine(i) ? words(t, i) : nullptr, pack);
        continue;
      }
      std::uint32_t n = 0;
      const std::uint32_t at = place(i, n);
      if (n == 16 && unit == 16) {
        store_16(t.pointer + at, parts.pack[i]);
      } else if (n > 0) {
        store_odd(t.pointer + at, parts.pack[i], n, unit);
      }
    }
  }

  Block& block_;
  const MoveArguments& m_;
  Wait& wait_;
  const std::uint32_t part_;
  const std::uint32_t bytes_;
  const bool is_copy_;
  std::uint32_t groups_ = 0;
  std::uint32_t pair_ = 0;  // the first of this thread's, this time round
  std::uint32_t pairs_ = 0;
};

/// By blocks of whole warps, of at least eight threads.
template <class E, class Block, class Wait>
TUTTI_HD bool move_ll128(Block& block, const MoveArguments& m, Wait&& wait) {
  return LineMove<E, Block, Wait>(block, m, wait).run();
}

}  // namespace tutti::device

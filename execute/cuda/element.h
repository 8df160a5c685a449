// Data types and operators of the device combine: how the elements of a pack (16 or 8 bytes in
// registers) are widened, reduced and rounded. Bit for bit what core/combine.h promises: narrow
// floats in float32 with one rounding, to nearest even; integers wrap; min and max hand on NaNs and
// order -0 below +0.
//
// Needs -fmad=false (host: -ffp-contract=off): a fused multiply-add would skip a rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/types.h"
#include "execute/cuda/memory.h"
#include "execute/cuda/narrow_float.h"

namespace tutti::device {

/// 2^e, for exponents of normal numbers.
template <class W>
TUTTI_HD W power_of_two(int e) {
  if constexpr (sizeof(W) == 4) {
    return __builtin_bit_cast(W, static_cast<std::uint32_t>(127 + e) << 23);
  } else {
    return __builtin_bit_cast(W, static_cast<std::uint64_t>(1023 + e) << 52);
  }
}

template <class T>
struct Native {
  using Storage = T;
  using Wide = T;
  static TUTTI_HD T widen(T v) { return v; }
  static TUTTI_HD T narrow(T v) { return v; }
};

/// The type whose kernels serve a type: those of an unsigned integer serve the signed one as well.
/// Sums and products wrap alike for both signs; Reduction::is_signed says how to order and divide.
constexpr DataType kernel_type(DataType type) {
  switch (type) {
    case DataType::int8:
      return DataType::uint8;
    case DataType::int32:
      return DataType::uint32;
    case DataType::int64:
      return DataType::uint64;
    default:
      return type;
  }
}

/// Of kernel_type()s.
template <DataType type>
struct Element;
template <>
struct Element<DataType::uint8> : Native<std::uint8_t> {};
template <>
struct Element<DataType::uint32> : Native<std::uint32_t> {};
template <>
struct Element<DataType::uint64> : Native<std::uint64_t> {};
template <>
struct Element<DataType::float16> : SmallFloat<std::uint16_t, 10, 15, 0x7C00, 0x7E00> {};
template <>
struct Element<DataType::float32> : Native<float> {};
template <>
struct Element<DataType::float64> : Native<double> {};
template <>
struct Element<DataType::bfloat16> : BFloat16 {};
template <>
struct Element<DataType::float8_e4m3> : SmallFloat<std::uint8_t, 3, 7, 0x7F, 0x7F> {};
template <>
struct Element<DataType::float8_e5m2> : SmallFloat<std::uint8_t, 2, 15, 0x7C, 0x7E> {};

template <DataType type>
using ElementOf = Element<kernel_type(type)>;

// --- Operators -----------------------------------------------------------------------------------

template <class W>
TUTTI_HD W wrapping_product(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a * b;
  } else {
    return static_cast<W>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
}

template <class W>
TUTTI_HD W wrapping_sum(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    return a + b;
  } else {
    return static_cast<W>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

/// The sign of an integer that is read as one without.
template <class W>
inline constexpr W kSignBit = static_cast<W>(W{1} << (8 * sizeof(W) - 1));

/// The smaller (`larger`: the larger) of two; a NaN on either side gives a NaN.
template <class W>
TUTTI_HD W extreme(W a, W b, bool larger, bool is_signed) {
  if constexpr (std::is_integral_v<W>) {
    const W flipped = is_signed ? kSignBit<W> : W{0};  // negative numbers come first
    return ((a ^ flipped) < (b ^ flipped)) != larger ? a : b;
  } else {
#if TUTTI_ON_DEVICE
    if constexpr (sizeof(W) == 4) {
      // One instruction: NaNs are handed on, and -0 is below +0.
      float smaller_one, larger_one;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller_one) : "f"(a), "f"(b));
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger_one) : "f"(a), "f"(b));
      return larger ? larger_one : smaller_one;
    }
#endif
    if (a != a || b != b) return std::numeric_limits<W>::quiet_NaN();
    if (a == b) {
      // Equal, but +0 and -0: min has the sign of either, max of both.
      using Bits = std::conditional_t<sizeof(W) == 4, std::uint32_t, std::uint64_t>;
      const Bits x = __builtin_bit_cast(Bits, a);
      const Bits y = __builtin_bit_cast(Bits, b);
      return __builtin_bit_cast(W, larger ? static_cast<Bits>(x & y) : static_cast<Bits>(x | y));
    }
    return (a < b) != larger ? a : b;
  }
}

/// avg and pre_multiplied_sum reduce as sum.
TUTTI_HD bool is_sum(ReduceKind kind) {
  return kind != ReduceKind::prod && kind != ReduceKind::min && kind != ReduceKind::max;
}

/// a * b + c, rounded once.
TUTTI_HD double fused(double a, double b, double c) {
#if TUTTI_ON_DEVICE
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// What happens to a source as it is read. A factor is also a division by a power of two, which has
/// the same bits.
enum class Scaling : std::uint32_t { none, factor, divide };

/// The reduction of a move.
struct Reduction {
  ReduceKind kind = ReduceKind::sum;
  bool is_signed = false;      // the integers
  bool divide_result = false;  // avg's last step, of integers and in the canonical order
  std::uint32_t divisor = 1;   // number of ranks
  double reciprocal = 1;       // of that
};

/// The unsigned integer of `bytes` bytes.
template <std::size_t bytes>
using Unsigned = std::conditional_t<
    bytes == 8, std::uint64_t,
    std::conditional_t<bytes == 4, std::uint32_t,
                       std::conditional_t<bytes == 2, std::uint16_t, std::uint8_t>>>;

/// Of floats rounded once; of integers truncating: as in 64 bits, where 32 are enough.
template <class W>
TUTTI_HD W quotient_of(W v, const Reduction& reduction) {
  if constexpr (std::is_same_v<W, float>) {
    // In doubles, where a quotient is more than twice as long and so may be rounded twice. One
    // correction makes it the nearest. Zeros and infinities need none, and zeros would lose their
    // sign.
    const double wide = v;
    const double first = wide * reduction.reciprocal;
    const double rest = fused(-first, reduction.divisor, wide);
    const auto quotient = static_cast<float>(fused(rest, reduction.reciprocal, first));
    return v == 0 || v - v != 0 ? v : quotient;
  } else if constexpr (std::is_floating_point_v<W>) {
    return v / reduction.divisor;
  } else {
    using Wide = std::conditional_t<sizeof(W) == 8, std::uint64_t, std::uint32_t>;
    const bool negative = reduction.is_signed && v >= kSignBit<W>;
    const Wide magnitude = negative ? static_cast<W>(W{0} - v) : v;
    const auto quotient = static_cast<W>(magnitude / static_cast<Wide>(reduction.divisor));
    return negative ? static_cast<W>(W{0} - quotient) : quotient;
  }
}

/// A widened number among bits, and back.
template <class W>
TUTTI_HD std::uint64_t packed(W v) {
  return __builtin_bit_cast(Unsigned<sizeof(W)>, v);
}
template <class W>
TUTTI_HD W unpacked(std::uint64_t bits) {
  return __builtin_bit_cast(W, static_cast<Unsigned<sizeof(W)>>(bits));
}

// --- Packs ---------------------------------------------------------------------------------------

/// The elements of kBytes bytes (16, 8, or two elements), widened.
template <class E, int kBytes>
class Widened {
  using Storage = typename E::Storage;
  using Wide = typename E::Wide;
  using Bits = Unsigned<sizeof(Storage)>;
  static constexpr int kPerWord = 8 / sizeof(Storage);
  static constexpr int kElements = kBytes / sizeof(Storage);

 public:
  TUTTI_HD void widen(Pair pack) {
    if constexpr (sizeof(Storage) < sizeof(Wide)) {
      // Two at a time.
      TUTTI_UNROLL
      for (int i = 0; i < kElements; i += 2) {
        const std::uint64_t word = i < kPerWord ? pack.first : pack.second;
        const Two two = E::widen_two(static_cast<std::uint32_t>(word >> shift(i)));
        value_[i] = two.low;
        value_[i + 1] = two.high;
      }
    } else {
      TUTTI_UNROLL
      for (int i = 0; i < kElements; ++i) value_[i] = E::widen(element(pack, i));
    }
  }
  /// What added to any number leaves it as it is, also if that is -0.
  TUTTI_HD void clear() {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) {
      value_[i] = std::is_floating_point_v<Wide> ? static_cast<Wide>(-0.0) : Wide{0};
    }
  }
  TUTTI_HD void multiply(Wide factor) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value_[i] = wrapping_product(value_[i], factor);
  }
  TUTTI_HD void add(const Widened& other) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value_[i] = wrapping_sum(value_[i], other.value_[i]);
  }
  TUTTI_HD void multiply(const Widened& other) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value_[i] = wrapping_product(value_[i], other.value_[i]);
  }
  TUTTI_HD void divide(const Reduction& reduction) {
    each([&](Wide v) { return quotient_of(v, reduction); });
  }
  /// The products, rounded to the type.
  TUTTI_HD void multiply_and_round(Wide factor) {
    each([&](Wide v) { return E::widen(E::narrow(v * factor)); });
  }

  /// `first`: this becomes what `other` is.
  TUTTI_HD void fold(const Widened& other, bool first, const Reduction& reduction) {
    if (first) {
      *this = other;
    } else if (is_sum(reduction.kind)) {
      add(other);
    } else if (reduction.kind == ReduceKind::prod) {
      multiply(other);
    } else {
      const bool larger = reduction.kind == ReduceKind::max;
      TUTTI_UNROLL
      for (int i = 0; i < kElements; ++i) {
        value_[i] = extreme(value_[i], other.value_[i], larger, reduction.is_signed);
      }
    }
  }

  /// Elements `which` * k to `which` * k + k - 1, for the k of a part.
  template <int kPart>
  TUTTI_HD Widened<E, kPart> part(std::uint32_t which) const {
    Widened<E, kPart> result;
    constexpr int k = Widened<E, kPart>::kElements;
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) {
      if (i < k || static_cast<int>(which) == i / k) result.value_[i % k] = value_[i];
    }
    return result;
  }
  template <int kPart>
  TUTTI_HD void set_part(std::uint32_t which, const Widened<E, kPart>& part) {
    constexpr int k = Widened<E, kPart>::kElements;
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) {
      if (static_cast<int>(which) == i / k) value_[i] = part.value_[i % k];
    }
  }

  TUTTI_HD Pair narrowed() const {
    std::uint64_t words[2] = {0, 0};
    if constexpr (sizeof(Storage) < sizeof(Wide)) {
      TUTTI_UNROLL
      for (int i = 0; i < kElements; i += 2) {
        const std::uint64_t codes = E::narrow_two({value_[i], value_[i + 1]});
        words[i / kPerWord] |= codes << shift(i);
      }
    } else {
      TUTTI_UNROLL
      for (int i = 0; i < kElements; ++i) {
        const std::uint64_t bits = __builtin_bit_cast(Bits, E::narrow(value_[i]));
        words[i / kPerWord] |= bits << shift(i);
      }
    }
    return {words[0], words[1]};
  }

 private:
  static TUTTI_HD unsigned shift(int i) {
    return 8 * sizeof(Storage) * static_cast<unsigned>(i % kPerWord);
  }
  /// Elements take turns in the first place, because no variable can number a register: so long
  /// code is there once.
  template <class F>
  TUTTI_HD void each(const F& f) {
    TUTTI_NO_UNROLL
    for (int n = 0; n < kElements; ++n) {
      const Wide next = f(value_[0]);
      TUTTI_UNROLL
      for (int i = 0; i + 1 < kElements; ++i) value_[i] = value_[i + 1];
      value_[kElements - 1] = next;
    }
  }
  static TUTTI_HD Storage element(Pair pack, int i) {
    const std::uint64_t word = i < kPerWord ? pack.first : pack.second;
    return __builtin_bit_cast(Storage, static_cast<Bits>(word >> shift(i)));
  }

  template <class, int>
  friend class Widened;
  Wide value_[kElements];
};

/// Sums of integers of a byte: four in a register, which wrap each by itself.
template <int kBytes>
class Widened<Element<DataType::uint8>, kBytes> {
  using T = std::uint8_t;

 public:
  TUTTI_HD void widen(Pair pack) {
    const std::uint64_t from[2] = {pack.first, pack.second};
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i)
      four_[i] = static_cast<std::uint32_t>(from[i / 2] >> i % 2 * 32);
  }
  TUTTI_HD Pair narrowed() const {
    std::uint64_t to[2] = {0, 0};
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i) to[i / 2] |= std::uint64_t{four_[i]} << i % 2 * 32;
    return {to[0], to[1]};
  }
  TUTTI_HD void clear() {
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i) four_[i] = 0;
  }
  TUTTI_HD void multiply(T factor) {
    const std::uint32_t by = factor;
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i) {
      const std::uint32_t even = (four_[i] & 0x00FF00FFu) * by & 0x00FF00FFu;
      const std::uint32_t odd = (four_[i] >> 8 & 0x00FF00FFu) * by & 0x00FF00FFu;
      four_[i] = even | odd << 8;
    }
  }
  TUTTI_HD void add(const Widened& other) {
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i) {
      const std::uint32_t a = four_[i];
      const std::uint32_t b = other.four_[i];
      four_[i] = ((a & 0x7F7F7F7Fu) + (b & 0x7F7F7F7Fu)) ^ ((a ^ b) & 0x80808080u);
    }
  }
  TUTTI_HD void divide(const Reduction& reduction) {
    each(*this, [&](T a, T) { return quotient_of(a, reduction); });
  }
  TUTTI_HD void fold(const Widened& other, bool first, const Reduction& reduction) {
    if (first) {
      *this = other;
    } else if (is_sum(reduction.kind)) {
      add(other);
    } else {
      each(other, [&](T a, T b) {
        return reduction.kind == ReduceKind::prod
                   ? wrapping_product(a, b)
                   : extreme(a, b, reduction.kind == ReduceKind::max, reduction.is_signed);
      });
    }
  }

 private:
  static constexpr int kFours = kBytes / 4;

  /// The lowest byte of all comes to the top, and the others move down, until all have been there.
  template <class F>
  TUTTI_HD void each(Widened other, const F& f) {
    TUTTI_NO_UNROLL
    for (int n = 0; n < 4 * kFours; ++n) {
      const T value = f(static_cast<T>(four_[0]), static_cast<T>(other.four_[0]));
      move_down(four_, value);
      move_down(other.four_, 0);
    }
  }
  static TUTTI_HD void move_down(std::uint32_t* four, std::uint32_t top) {
    TUTTI_UNROLL
    for (int i = 0; i < kFours; ++i) {
      const std::uint32_t above = i + 1 < kFours ? four[i + 1] : top;
      four[i] = four[i] >> 8 | above << 24;
    }
  }

  std::uint32_t four_[kFours];
};

}  // namespace tutti::device

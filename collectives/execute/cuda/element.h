// Data types and operators of the device combine: how the elements of a pack (16 or 8 bytes in
// registers) are widened, reduced and rounded. Bit for bit what core/combine.h promises: narrow
// floats in float32 with one rounding, to nearest even; integers wrap; min and max hand on NaNs and
// order -0 below +0.
//
// Needs -fmad=false (host: -ffp-contract=off): a fused multiply-add would skip a rounding.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectives/execute/cuda/memory.h"
#include "core/types.h"

namespace tutti::device {

TUTTI_HD std::uint32_t bits_of(float v) { return __builtin_bit_cast(std::uint32_t, v); }
TUTTI_HD float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// 2^e, for exponents of normal numbers.
template <class W>
TUTTI_HD W power_of_two(int e) {
  if constexpr (sizeof(W) == 4) {
    return __builtin_bit_cast(W, static_cast<std::uint32_t>(127 + e) << 23);
  } else {
    return __builtin_bit_cast(W, static_cast<std::uint64_t>(1023 + e) << 52);
  }
}

// --- Narrow floats -------------------------------------------------------------------------------
//
// Integer arithmetic, and floating point only where neither operand nor result is subnormal, as in
// core/combine_vectors-inl.h. kOverflow: the code of infinity, or of NaN where there is none.

template <class T, int kMantissa, int kBias, std::uint32_t kOverflow, std::uint32_t kNaN>
struct SmallFloat {
  using Storage = T;
  using Wide = float;
  static constexpr int kWidth = 8 * sizeof(T);
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = 127 - kBias;

  static TUTTI_HD float widen(T storage) {
    const std::uint32_t code = storage;
    const std::uint32_t magnitude = code & ((1u << (kWidth - 1)) - 1);
    const std::uint32_t sign = (code ^ magnitude) << (32 - kWidth);
    std::uint32_t bits = (magnitude << kShift) + (kRebias << 23);
    if (magnitude < (1u << kMantissa)) {
      // Subnormal: the code counts units of the smallest number.
      constexpr std::uint32_t unit = (127u + 1 - kBias - kMantissa) << 23;
      bits = bits_of(static_cast<float>(magnitude) * float_of(unit));
    } else if (kOverflow == kNaN) {
      if (magnitude == kNaN) bits = 0x7FC00000u;
    } else if (magnitude >= kOverflow) {
      bits |= magnitude > kOverflow ? 0x7FC00000u : 0x7F800000u;
    }
    return float_of(bits | sign);
  }

  static TUTTI_HD T narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    const std::uint32_t sign = (bits ^ magnitude) >> (32 - kWidth);
    std::uint32_t code;
    if (magnitude < (kRebias + 1) << 23) {
      // Subnormal: adding a number whose last bit is the smallest subnormal rounds there.
      constexpr std::uint32_t magic = (127u + 24 - kBias - kMantissa) << 23;
      code = bits_of(float_of(magnitude) + float_of(magic)) - magic;
    } else {
      // Rounding carries into the exponent where it has to.
      const std::uint32_t odd = (magnitude >> kShift) & 1;
      code = (magnitude - (kRebias << 23) + odd + (1u << (kShift - 1)) - 1) >> kShift;
      if (code > kOverflow) code = kOverflow;
      if (kOverflow != kNaN && magnitude > 0x7F800000u) code = kNaN;
    }
    return static_cast<T>(code | sign);
  }
};

struct BFloat16 {
  using Storage = std::uint16_t;
  using Wide = float;
  static TUTTI_HD float widen(std::uint16_t code) {
    return float_of(static_cast<std::uint32_t>(code) << 16);
  }
  static TUTTI_HD std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t rounded = bits + ((bits >> 16) & 1) + 0x7FFFu;
    return static_cast<std::uint16_t>((value != value ? bits | 0x400000u : rounded) >> 16);
  }
};

template <class T>
struct Native {
  using Storage = T;
  using Wide = T;
  static TUTTI_HD T widen(T v) { return v; }
  static TUTTI_HD T narrow(T v) { return v; }
};

template <DataType type>
struct ElementOf;
template <>
struct ElementOf<DataType::int8> : Native<std::int8_t> {};
template <>
struct ElementOf<DataType::uint8> : Native<std::uint8_t> {};
template <>
struct ElementOf<DataType::int32> : Native<std::int32_t> {};
template <>
struct ElementOf<DataType::uint32> : Native<std::uint32_t> {};
template <>
struct ElementOf<DataType::int64> : Native<std::int64_t> {};
template <>
struct ElementOf<DataType::uint64> : Native<std::uint64_t> {};
template <>
struct ElementOf<DataType::float16> : SmallFloat<std::uint16_t, 10, 15, 0x7C00, 0x7E00> {};
template <>
struct ElementOf<DataType::float32> : Native<float> {};
template <>
struct ElementOf<DataType::float64> : Native<double> {};
template <>
struct ElementOf<DataType::bfloat16> : BFloat16 {};
template <>
struct ElementOf<DataType::float8_e4m3> : SmallFloat<std::uint8_t, 3, 7, 0x7F, 0x7F> {};
template <>
struct ElementOf<DataType::float8_e5m2> : SmallFloat<std::uint8_t, 2, 15, 0x7C, 0x7E> {};

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

/// The smaller (`larger`: the larger) of two; a NaN on either side gives a NaN.
template <class W>
TUTTI_HD W extreme(W a, W b, bool larger) {
  if constexpr (std::is_floating_point_v<W>) {
    if (a != a || b != b) return std::numeric_limits<W>::quiet_NaN();
    if (a == b) {
      // Equal, but +0 and -0: min has the sign of either, max of both.
      using Bits = std::conditional_t<sizeof(W) == 4, std::uint32_t, std::uint64_t>;
      const Bits x = __builtin_bit_cast(Bits, a);
      const Bits y = __builtin_bit_cast(Bits, b);
      return __builtin_bit_cast(W, larger ? static_cast<Bits>(x & y) : static_cast<Bits>(x | y));
    }
  }
  return (a < b) != larger ? a : b;
}

/// avg and pre_multiplied_sum reduce as sum.
TUTTI_HD bool is_sum(ReduceKind kind) {
  return kind != ReduceKind::prod && kind != ReduceKind::min && kind != ReduceKind::max;
}

// Out of line, as there would be hundreds of each: an operator that is no sum, and divisions.
template <class W>
TUTTI_COLD W rarely_reduced(ReduceKind kind, W a, W b) {
  if (kind == ReduceKind::prod) return wrapping_product(a, b);
  return extreme(a, b, kind == ReduceKind::max);
}
template <class W>
TUTTI_COLD W quotient(W a, W b) {
  return a / b;
}

/// What happens to a source as it is read; as core/combine.h's Prescale.
enum class Scaling : std::uint32_t { none, multiply, divide };

/// The reduction of a move.
struct Reduction {
  ReduceKind kind = ReduceKind::sum;
  bool divide_result = false;  // integers: avg's last step
  std::uint32_t divisor = 1;   // number of ranks
};

/// The unsigned integer of `bytes` bytes.
template <std::size_t bytes>
using Unsigned = std::conditional_t<
    bytes == 8, std::uint64_t,
    std::conditional_t<bytes == 4, std::uint32_t,
                       std::conditional_t<bytes == 2, std::uint16_t, std::uint8_t>>>;

/// Whether scaling is a multiplication: also a division by a power of two, which has the same bits.
TUTTI_HD bool has_factor(Scaling scaling, std::uint32_t divisor) {
  return scaling != Scaling::divide || (divisor & (divisor - 1)) == 0;
}
template <class E>
TUTTI_HD typename E::Wide factor_of(Scaling scaling, std::uint64_t scalar, std::uint32_t divisor) {
  using Wide = typename E::Wide;
  using Bits = Unsigned<sizeof(typename E::Storage)>;
  if constexpr (std::is_floating_point_v<Wide>) {
    // 1 / divisor, by its exponent.
    if (scaling == Scaling::divide) return power_of_two<Wide>(-lowest_bit(divisor));
  }
  return E::widen(__builtin_bit_cast(typename E::Storage, static_cast<Bits>(scalar)));
}

// --- Packs ---------------------------------------------------------------------------------------

/// The elements of kWords 8-byte words, widened.
template <class E, int kWords>
struct Widened {
  using Storage = typename E::Storage;
  using Wide = typename E::Wide;
  static constexpr int kPerWord = 8 / sizeof(Storage);
  static constexpr int kElements = kWords * kPerWord;
  using Bits = Unsigned<sizeof(Storage)>;
  Wide value[kElements];

  static TUTTI_HD unsigned shift(int i) {
    return 8 * sizeof(Storage) * static_cast<unsigned>(i % kPerWord);
  }
  static TUTTI_HD Storage element(Pair pack, int i) {
    const std::uint64_t word = i < kPerWord ? pack.first : pack.second;
    return __builtin_bit_cast(Storage, static_cast<Bits>(word >> shift(i)));
  }

  TUTTI_HD void widen(Pair pack) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value[i] = E::widen(element(pack, i));
  }
  TUTTI_HD void multiply(Wide factor) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value[i] = wrapping_product(value[i], factor);
  }
  TUTTI_HD void add(const Widened& other) {
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) value[i] = wrapping_sum(value[i], other.value[i]);
  }

  /// As it is read.
  TUTTI_HD void scale(Scaling scaling, std::uint64_t scalar, std::uint32_t divisor) {
    if (scaling == Scaling::none) return;
    if (has_factor(scaling, divisor)) return multiply(factor_of<E>(scaling, scalar, divisor));
    if constexpr (std::is_floating_point_v<Wide>) {
      TUTTI_UNROLL
      for (int i = 0; i < kElements; ++i) value[i] = quotient(value[i], static_cast<Wide>(divisor));
    }
  }
  /// `first`: this becomes what `other` is.
  TUTTI_HD void fold(const Widened& other, bool first, ReduceKind kind) {
    if (first) {
      *this = other;
    } else if (is_sum(kind)) {
      add(other);
    } else {
      TUTTI_UNROLL
      for (int i = 0; i < kElements; ++i) {
        value[i] = rarely_reduced(kind, value[i], other.value[i]);
      }
    }
  }

  TUTTI_HD Pair stored(const Reduction& reduction) {
    if constexpr (std::is_integral_v<Wide>) {
      if (reduction.divide_result) {
        // Truncating, in 64 bits of the type's own signedness.
        using Long = std::conditional_t<std::is_signed_v<Wide>, std::int64_t, std::uint64_t>;
        const Long by = static_cast<Long>(reduction.divisor);
        TUTTI_UNROLL
        for (int i = 0; i < kElements; ++i) {
          value[i] = static_cast<Wide>(quotient(static_cast<Long>(value[i]), by));
        }
      }
    }
    return narrowed();
  }
  TUTTI_HD Pair narrowed() const {
    std::uint64_t words[2] = {0, 0};
    TUTTI_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const std::uint64_t bits = __builtin_bit_cast(Bits, E::narrow(value[i]));
      words[i / kPerWord] |= bits << shift(i);
    }
    return {words[0], words[1]};
  }
};

}  // namespace tutti::device

// The narrow floats of the device combine, of 16 and 8 bits: widened to float32, and rounded once,
// to nearest even, when they are stored. Written out in integer arithmetic, and two at a time by
// the device's own conversions where it has them: these take a tenth of the instructions, which
// would be most of what a kernel does.
#pragma once

#include <cmath>
#include <cstdint>

#include "execute/cuda/portable.h"

namespace tutti::device {

TUTTI_HD std::uint32_t bits_of(float v) { return __builtin_bit_cast(std::uint32_t, v); }
TUTTI_HD float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// Two numbers; of their codes, in a word, `low` has the lower bits.
struct Two {
  float low, high;
};

// --- The device's conversions --------------------------------------------------------------------

#ifdef __CUDA_ARCH__
inline constexpr bool kConvertsHalves = true;
inline constexpr bool kConvertsBytes = __CUDA_ARCH__ >= 890;
#else
inline constexpr bool kConvertsHalves = false;
inline constexpr bool kConvertsBytes = false;
#endif

TUTTI_HD Two widen_halves([[maybe_unused]] std::uint32_t codes) {
  Two v{};
#if TUTTI_ON_DEVICE
  const auto low = static_cast<std::uint16_t>(codes);
  const auto high = static_cast<std::uint16_t>(codes >> 16);
  asm("cvt.f32.f16 %0, %1;" : "=f"(v.low) : "h"(low));
  asm("cvt.f32.f16 %0, %1;" : "=f"(v.high) : "h"(high));
#endif
  return v;
}

TUTTI_HD std::uint32_t narrow_to_halves([[maybe_unused]] Two v) {
  std::uint32_t codes = 0;
#if TUTTI_ON_DEVICE
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(v.high), "f"(v.low));
#endif
  return codes;
}

TUTTI_HD std::uint32_t narrow_to_bfloats([[maybe_unused]] Two v) {
  std::uint32_t codes = 0;
#if TUTTI_ON_DEVICE
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(v.high), "f"(v.low));
#endif
  return codes;
}

template <int kMantissa>
TUTTI_HD Two widen_bytes(std::uint32_t codes) {
  const auto two = static_cast<std::uint16_t>(codes);
  std::uint32_t halves = two;
#if TUTTI_ON_DEVICE
  if constexpr (kMantissa == 3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(two));
  }
#endif
  return widen_halves(halves);
}

/// The instruction turns a number that is too large into the largest one. The code after the
/// largest is e4m3's NaN, and e5m2's infinity: it belongs to the numbers that rounding without a
/// limit would give it, and to all larger ones.
template <int kMantissa>
TUTTI_HD std::uint32_t narrow_to_bytes(Two v) {
  std::uint16_t codes = 0;
#if TUTTI_ON_DEVICE
  if constexpr (kMantissa == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(v.high), "f"(v.low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(v.high), "f"(v.low));
  }
#endif
  const auto is_above = [](float x) {
    return kMantissa == 3 ? std::fabs(x) > 464.0f : std::fabs(x) >= 61440.0f;
  };
  return codes + (is_above(v.low) ? 1u : 0u) + (is_above(v.high) ? 0x100u : 0u);
}

// --- Types ---------------------------------------------------------------------------------------

/// Integer arithmetic, and floating point only where neither operand nor result is subnormal, as in
/// core/combine_vectors-inl.h. kOverflow: the code of infinity, or of NaN where there is none.
template <class T, int kMantissa, int kBias, std::uint32_t kOverflow, std::uint32_t kNaN>
struct SmallFloat {
  using Storage = T;
  using Wide = float;
  static constexpr int kWidth = 8 * sizeof(T);
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = 127 - kBias;
  static constexpr bool kByDevice = kWidth == 16 ? kConvertsHalves : kConvertsBytes;

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

  static TUTTI_HD Two widen_two(std::uint32_t codes) {
    if constexpr (kByDevice && kWidth == 16) {
      return widen_halves(codes);
    } else if constexpr (kByDevice) {
      return widen_bytes<kMantissa>(codes);
    } else {
      return {widen(static_cast<T>(codes)), widen(static_cast<T>(codes >> kWidth))};
    }
  }
  static TUTTI_HD std::uint32_t narrow_two(Two v) {
    if constexpr (kByDevice && kWidth == 16) {
      return narrow_to_halves(v);
    } else if constexpr (kByDevice) {
      return narrow_to_bytes<kMantissa>(v);
    } else {
      return narrow(v.low) | static_cast<std::uint32_t>(narrow(v.high)) << kWidth;
    }
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
  static TUTTI_HD Two widen_two(std::uint32_t codes) {
    return {float_of(codes << 16), float_of(codes & 0xFFFF0000u)};
  }
  static TUTTI_HD std::uint32_t narrow_two(Two v) {
    if constexpr (kConvertsHalves) {
      return narrow_to_bfloats(v);
    } else {
      return narrow(v.low) | static_cast<std::uint32_t>(narrow(v.high)) << 16;
    }
  }
};

}  // namespace tutti::device

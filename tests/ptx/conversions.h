// The narrow floats of PTX's cvt, from the definition of the formats (PTX ISA, "Alternate
// floating-point data formats" and "cvt"): nothing is shared with core/convert, so that each can
// check the other.
#pragma once

#include <cstdint>

namespace tutti::ptx {

struct FloatFormat {
  int exponent, mantissa;  // bits
  std::uint32_t largest;   // the code of the largest finite number
  std::uint32_t infinity;  // what comes after rounding beyond it
  std::uint32_t nan;       // the NaN of a result
};

inline constexpr FloatFormat kF16{5, 10, 0x7BFF, 0x7C00, 0x7FFF};
inline constexpr FloatFormat kBF16{8, 7, 0x7F7F, 0x7F80, 0x7FFF};
inline constexpr FloatFormat kE4M3{4, 3, 0x7E, 0x7F, 0x7F};  // without infinity
inline constexpr FloatFormat kE5M2{5, 2, 0x7B, 0x7C, 0x7F};

float widen(const FloatFormat& f, std::uint32_t code);
/// Rounds to nearest even. `finite`: .satfinite.
std::uint32_t narrow(const FloatFormat& f, float value, bool finite);

}  // namespace tutti::ptx

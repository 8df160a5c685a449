#include "tests/ptx/conversions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tutti::ptx {

float widen(const FloatFormat& f, std::uint32_t code) {
  const std::uint32_t sign = code >> (f.exponent + f.mantissa) & 1;
  const std::uint32_t magnitude = code & ((1u << (f.exponent + f.mantissa)) - 1);
  const int bias = (1 << (f.exponent - 1)) - 1;
  double value;
  if (magnitude > f.largest) {
    const bool infinite = magnitude == f.infinity && f.infinity != f.nan;
    // cvt gives a NaN one code, whatever it was.
    if (!infinite) return std::bit_cast<float>(0x7FFFFFFFu);
    value = std::numeric_limits<double>::infinity();
  } else {
    const auto exponent = static_cast<int>(magnitude >> f.mantissa);
    const auto fraction = static_cast<double>(magnitude & ((1u << f.mantissa) - 1));
    value = exponent == 0 ? std::ldexp(fraction, 1 - bias - f.mantissa)
                          : std::ldexp(fraction + (1 << f.mantissa), exponent - bias - f.mantissa);
  }
  return static_cast<float>(sign != 0 ? -value : value);
}

std::uint32_t narrow(const FloatFormat& f, float value, bool finite) {
  if (std::isnan(value)) return f.nan;
  const std::uint32_t sign = (std::signbit(value) ? 1u : 0u) << (f.exponent + f.mantissa);
  const std::uint32_t beyond = finite ? f.largest : f.infinity;
  if (std::isinf(value)) return sign | beyond;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return sign;
  const int bias = (1 << (f.exponent - 1)) - 1;
  int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place; a float has few enough bits that this is exact.
  auto units =
      static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent)));
  const std::uint64_t one = std::uint64_t{1} << f.mantissa;
  if (units == 2 * one) {
    units = one;
    ++exponent;
  }
  const std::uint64_t code =
      units < one ? units
                  : (static_cast<std::uint64_t>(exponent + bias) << f.mantissa) + units - one;
  return sign | (code > f.largest ? beyond : static_cast<std::uint32_t>(code));
}

}  // namespace tutti::ptx

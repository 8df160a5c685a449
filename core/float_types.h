// Scalar conversions between the narrow floats (float16, bfloat16, float8_e4m3, float8_e5m2) and
// the native ones: plain integer arithmetic, one rounding, to nearest even, whatever the floating
// point environment says. The tests compare the vectorised conversions of combine() with these.
//
// Too large for the type after rounding:
//   float16, bfloat16, float8_e5m2   infinity (IEEE 754)
//   float8_e4m3                      NaN: it has no infinity, and this is the non-saturating
//                                    conversion of the OCP OFP8 specification. So 464 (halfway
//                                    between 448 and the next step, a tie to even) still gives 448,
//                                    and anything above it, infinity included, gives NaN.
// A NaN stays a NaN of the same sign: the quiet NaN with no other payload (e4m3: its only one).
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

namespace detail {

struct FloatFormat {
  int mantissa_bits;
  int bias;
  std::uint32_t sign_bit;
  std::uint32_t overflow;   // the code of a value that is too large
  std::uint32_t quiet_nan;  // without the sign

  /// e4m3 has none, and uses its largest exponent (bias + 1) for numbers.
  constexpr bool has_infinity() const { return overflow != quiet_nan; }
};

inline constexpr FloatFormat kFloat16{10, 15, 0x8000, 0x7C00, 0x7E00};
inline constexpr FloatFormat kBFloat16{7, 127, 0x8000, 0x7F80, 0x7FC0};
inline constexpr FloatFormat kFloat8E4M3{3, 7, 0x80, 0x7F, 0x7F};
inline constexpr FloatFormat kFloat8E5M2{2, 15, 0x80, 0x7C, 0x7E};

constexpr std::uint32_t narrow(const FloatFormat& format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint32_t sign = (bits >> 63) != 0 ? format.sign_bit : 0;
  if (value != value) return sign | format.quiet_nan;
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1023;
  if (exponent > format.bias + (format.has_infinity() ? 0 : 1)) return sign | format.overflow;
  const std::uint64_t significand =
      (bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  const int smallest = 1 - format.bias;  // exponent of the smallest normal number
  int dropped = 52 - format.mantissa_bits;
  if (exponent < smallest) dropped += smallest - exponent;
  if (dropped > 53) return sign;  // less than half of the smallest subnormal number
  std::uint64_t kept = significand >> dropped;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // `kept` includes the leading 1 of a normal number, which adds the missing 1 to the exponent;
  // a carry out of the mantissa does the same.
  auto code = static_cast<std::uint32_t>(kept);
  if (exponent >= smallest) {
    code += static_cast<std::uint32_t>(exponent - smallest) << format.mantissa_bits;
  }
  return sign | (code > format.overflow ? format.overflow : code);
}

constexpr float widen(const FloatFormat& format, std::uint32_t code) {
  const std::uint32_t magnitude = code & (format.sign_bit - 1);
  const std::uint32_t sign = (code & format.sign_bit) != 0 ? 0x80000000u : 0;
  if (magnitude >= format.overflow) {
    const bool infinite = format.has_infinity() && magnitude == format.overflow;
    return std::bit_cast<float>(sign | (infinite ? 0x7F800000u : 0x7FC00000u));
  }
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int shift = 23 - format.mantissa_bits;
  if (exponent != 0) {
    const auto widened = static_cast<std::uint32_t>(exponent - format.bias + 127);
    return std::bit_cast<float>(sign | (widened << 23) | (mantissa << shift));
  }
  if (format.bias == 127) return std::bit_cast<float>(sign | (mantissa << shift));  // bfloat16
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int leading = std::bit_width(mantissa) - 1;
  const auto widened =
      static_cast<std::uint32_t>(1 - format.bias - format.mantissa_bits + leading + 127);
  const std::uint32_t fraction = (mantissa << (23 - leading)) & 0x7FFFFFu;
  return std::bit_cast<float>(sign | (widened << 23) | fraction);
}

}  // namespace detail

// From double as well as from float (which converts to double exactly): one rounding either way.
constexpr std::uint16_t to_float16(double value) {
  return static_cast<std::uint16_t>(detail::narrow(detail::kFloat16, value));
}
constexpr std::uint16_t to_bfloat16(double value) {
  return static_cast<std::uint16_t>(detail::narrow(detail::kBFloat16, value));
}
constexpr std::uint8_t to_float8_e4m3(double value) {
  return static_cast<std::uint8_t>(detail::narrow(detail::kFloat8E4M3, value));
}
constexpr std::uint8_t to_float8_e5m2(double value) {
  return static_cast<std::uint8_t>(detail::narrow(detail::kFloat8E5M2, value));
}

}  // namespace tutti

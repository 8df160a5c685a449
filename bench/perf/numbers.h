// The element types for test data: their bits, and the conversion of numbers to bits. Independent
// of core/combine on purpose: the tests check combine's results against it. All inline: a loop over
// elements of one type, known when it is compiled, is several times faster than one that asks for
// each.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/types.h"

namespace tutti::perf {

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;  // without the implicit one
  int max_exponent;   // of the largest finite value

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int precision() const { return mantissa_bits + 1; }
  /// Exponent of the smallest subnormal: every value is a multiple of 2^quantum().
  constexpr int quantum() const { return 1 - bias() - mantissa_bits; }
};

/// `type` must be a float.
constexpr FloatFormat float_format(DataType type) {
  switch (type) {
    case DataType::float8_e4m3:
      return {4, 3, 8};
    case DataType::float8_e5m2:
      return {5, 2, 15};
    case DataType::float16:
      return {5, 10, 15};
    case DataType::bfloat16:
      return {8, 7, 127};
    case DataType::float32:
      return {8, 23, 127};
    default:
      return {11, 52, 1023};
  }
}

constexpr int bits_of(DataType type) { return static_cast<int>(size_of(type)) * 8; }
constexpr std::uint64_t sign_bit(DataType type) { return std::uint64_t{1} << (bits_of(type) - 1); }

/// The low bits of `value`, as many as the type has.
constexpr std::uint64_t truncate(DataType type, std::uint64_t value) {
  return value & (~std::uint64_t{0} >> (64 - bits_of(type)));
}
/// A signed type's bits as a number.
constexpr std::int64_t sign_extend(DataType type, std::uint64_t bits) {
  const int unused = 64 - bits_of(type);
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

/// A float32 in the narrower format, to nearest even. Integer arithmetic on the float32's bits: its
/// exponent and mantissa are one number, so a mantissa that rounds up carries into the exponent.
inline std::uint32_t narrow(const FloatFormat& format, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31) << (format.exponent_bits + format.mantissa_bits);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < 1 - format.bias()) {  // subnormal: a count of quanta, rounded by the addition
    const float magic = std::ldexp(1.0f, format.quantum() + 23);
    const float sum = std::bit_cast<float>(magnitude) + magic;
    return sign | (std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(magic));
  }
  const int dropped = 23 - format.mantissa_bits;
  const std::uint32_t half_down = (1u << (dropped - 1)) - 1;
  const std::uint32_t odd = (magnitude >> dropped) & 1;
  const std::uint32_t rounded = (magnitude + half_down + odd) >> dropped;
  return sign |
         (rounded - (static_cast<std::uint32_t>(127 - format.bias()) << format.mantissa_bits));
}

/// The bits of `value`, rounded to nearest even. Types narrower than 64 bits: `value` must be a
/// float32 value, and in range.
inline std::uint64_t encode(DataType type, double value) {
  if (type == DataType::float64) return std::bit_cast<std::uint64_t>(value);
  const auto single = static_cast<float>(value);
  if (type == DataType::float32) return std::bit_cast<std::uint32_t>(single);
  const FloatFormat format = float_format(type);
  if (type == DataType::bfloat16) {  // float32's exponents: the subnormals need no special case
    const auto bits = std::bit_cast<std::uint32_t>(single);
    return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  }
  return narrow(format, single);
}

constexpr bool is_nan(DataType type, std::uint64_t bits) {
  if (!is_float(type)) return false;
  const std::uint64_t magnitude = bits & (sign_bit(type) - 1);
  if (type == DataType::float8_e4m3) return magnitude == 0x7f;
  const FloatFormat format = float_format(type);
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent_bits) - 1)
                                 << format.mantissa_bits;
  return magnitude > infinity;
}

/// Orders values as min and max do (-0 below +0): a < b exactly where key(a) < key(b). No NaNs.
constexpr std::uint64_t order_key(DataType type, std::uint64_t bits) {
  const std::uint64_t sign = sign_bit(type);
  if (is_signed_integer(type)) return bits ^ sign;
  if (!is_float(type)) return bits;
  return (bits & sign) != 0 ? truncate(type, ~bits) : bits | sign;
}

// Little-endian, as everything that Tutti runs on.
static_assert(std::endian::native == std::endian::little);

/// Reads and writes one element.
inline std::uint64_t load(DataType type, const void* element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  return bits;
}
inline void store(DataType type, void* element, std::uint64_t bits) {
  std::memcpy(element, &bits, size_of(type));
}

/// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the argument
/// changes half of the bits of the result.
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace tutti::perf

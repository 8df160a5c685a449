// What the test data needs to know about the element types: their bits, and how numbers become
// bits. Written apart from core/combine on purpose: it is what combine's results are checked
// against.
#pragma once

#include <cstdint>

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
FloatFormat float_format(DataType type);

/// The bits of `value`, rounded to nearest even. Types narrower than 64 bits: `value` must be a
/// float32 value, and in range.
std::uint64_t encode(DataType type, double value);

bool is_nan(DataType type, std::uint64_t bits);

/// Orders values as min and max do (-0 below +0): a < b exactly where key(a) < key(b). No NaNs.
std::uint64_t order_key(DataType type, std::uint64_t bits);

/// The low bits of `value`, as many as the type has.
std::uint64_t truncate(DataType type, std::uint64_t value);
/// A signed type's bits as a number.
std::int64_t sign_extend(DataType type, std::uint64_t bits);
bool is_signed_integer(DataType type);

/// Reads and writes one element.
std::uint64_t load(DataType type, const void* element);
void store(DataType type, void* element, std::uint64_t bits);

/// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014): every bit of the argument
/// changes half of the bits of the result.
std::uint64_t mix(std::uint64_t value);

}  // namespace tutti::perf

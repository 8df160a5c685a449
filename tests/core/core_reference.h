// An independent reference for the data types and reductions of core/: values by formula, rounding
// by search among all values of the type, reductions in wider arithmetic. Slow and plain.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "core/combine.h"
#include "core/types.h"

namespace tutti::reference {

// Holds every value of the integer types, and every divisor.
__extension__ typedef __int128 Wide;

// A narrow float by its definition: `codes` without the sign bit, finite below `largest` + 1.
class NarrowFloat {
 public:
  NarrowFloat(int width, int mantissa_bits, int bias, std::uint32_t largest, bool has_infinity)
      : sign_(1u << (width - 1)),
        mantissa_bits_(mantissa_bits),
        bias_(bias),
        largest_(largest),
        has_infinity_(has_infinity) {
    // One more than the largest: what rounding would give without a limit.
    for (std::uint32_t code = 0; code <= largest + 1; ++code) values_.push_back(magnitude(code));
  }

  std::uint32_t sign() const { return sign_; }
  std::uint32_t largest() const { return largest_; }
  // Without an infinity the one NaN follows the largest value; else it is infinity's code with the
  // highest mantissa bit.
  std::uint32_t quiet_nan() const {
    return has_infinity_ ? (largest_ + 1) | (1u << (mantissa_bits_ - 1)) : largest_ + 1;
  }
  bool is_nan(std::uint32_t code) const {
    return (code & (sign_ - 1)) > largest_ + (has_infinity_ ? 1 : 0);
  }

  double value(std::uint32_t code) const {
    const std::uint32_t rest = code & (sign_ - 1);
    double v = 0;
    if (is_nan(code)) {
      v = std::numeric_limits<double>::quiet_NaN();
    } else if (rest > largest_) {
      v = std::numeric_limits<double>::infinity();
    } else {
      v = values_[rest];
    }
    return (code & sign_) != 0 ? -v : v;
  }

  // The nearest value; of two equally near ones, the one with the even code.
  std::uint32_t round(double v) const {
    if (std::isnan(v)) return quiet_nan();
    const std::uint32_t sign = std::signbit(v) ? sign_ : 0;
    v = std::abs(v);
    const auto above = std::lower_bound(values_.begin(), values_.end(), v);
    if (above == values_.end()) return sign | (largest_ + 1);
    auto code = static_cast<std::uint32_t>(above - values_.begin());
    if (*above != v) {
      const double up = *above - v;  // exact: the operands are close or have few bits
      const double down = v - values_[code - 1];
      if (down < up || (down == up && (code & 1) != 0)) --code;
    }
    return sign | code;
  }

  const std::vector<double>& magnitudes() const { return values_; }

 private:
  double magnitude(std::uint32_t code) const {
    const int exponent = static_cast<int>(code >> mantissa_bits_);
    const double mantissa = code & ((1u << mantissa_bits_) - 1);
    const double one = std::ldexp(1.0, mantissa_bits_);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias_ - mantissa_bits_);
    return std::ldexp(one + mantissa, exponent - bias_ - mantissa_bits_);
  }

  std::uint32_t sign_;
  int mantissa_bits_;
  int bias_;
  std::uint32_t largest_;
  bool has_infinity_;
  std::vector<double> values_;
};

inline const NarrowFloat& narrow_float(DataType type) {
  static const NarrowFloat float16(16, 10, 15, 0x7BFF, true);
  static const NarrowFloat bfloat16(16, 7, 127, 0x7F7F, true);
  static const NarrowFloat e4m3(8, 3, 7, 0x7E, false);
  static const NarrowFloat e5m2(8, 2, 15, 0x7B, true);
  if (type == DataType::float16) return float16;
  if (type == DataType::bfloat16) return bfloat16;
  return type == DataType::float8_e4m3 ? e4m3 : e5m2;
}

struct Term {
  std::uint64_t bits = 0;  // one element, in the low bytes
  Prescale prescale = Prescale::none;
  std::uint64_t scalar = 0;
};

template <class F>
F float_from(DataType type, std::uint64_t bits) {
  if (type == DataType::float32) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  }
  if (type == DataType::float64) return static_cast<F>(std::bit_cast<double>(bits));
  return static_cast<F>(narrow_float(type).value(static_cast<std::uint32_t>(bits)));
}

// Rounded to the type.
template <class F>
std::uint64_t float_to(DataType type, F value) {
  if (type == DataType::float64) return std::bit_cast<std::uint64_t>(static_cast<double>(value));
  if (type == DataType::float32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return narrow_float(type).round(static_cast<double>(value));
}

// In the canonical order of docs/determinism.md. F: float, or double for float64.
template <class F>
F tree(ReduceKind kind, std::span<const F> terms) {
  if (terms.size() == 1) return terms[0];
  const std::size_t half = std::bit_floor(terms.size() - 1);
  const F left = tree(kind, terms.first(half));
  const F right = tree(kind, terms.subspan(half));
  return kind == ReduceKind::prod ? left * right : left + right;
}

// float32 results by way of double, which rounds +, * and / of two float32 to the same float32.
template <class F>
F rounded(double exact) {
  return static_cast<F>(exact);
}

template <class F>
F extreme(F a, F b, bool want_min) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
  if (a == b) return std::signbit(a) == want_min ? a : b;
  return (a < b) == want_min ? a : b;
}

template <class F>
std::uint64_t reduce_floats(DataType type, ReduceKind kind, const std::vector<Term>& terms,
                            std::uint32_t divisor) {
  F result = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    F x = float_from<F>(type, terms[i].bits);
    if (terms[i].prescale == Prescale::multiply) {
      x = rounded<F>(static_cast<double>(x) * float_from<F>(type, terms[i].scalar));
    } else if (terms[i].prescale == Prescale::divide) {
      x = rounded<F>(static_cast<double>(x) / static_cast<F>(divisor));
    }
    if (i == 0) {
      result = x;
    } else if (kind == ReduceKind::prod) {
      result = rounded<F>(static_cast<double>(result) * x);
    } else if (kind == ReduceKind::min || kind == ReduceKind::max) {
      result = extreme(result, x, kind == ReduceKind::min);
    } else {
      result = rounded<F>(static_cast<double>(result) + x);
    }
  }
  return float_to<F>(type, result);
}

template <class T>
std::uint64_t reduce_integers(ReduceKind kind, const std::vector<Term>& terms,
                              const CombineOptions& options) {
  using U = std::make_unsigned_t<T>;
  T result = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    std::uint64_t wide = terms[i].bits;
    if (terms[i].prescale == Prescale::multiply) wide *= terms[i].scalar;
    const T x = static_cast<T>(static_cast<U>(wide));
    if (i == 0) {
      result = x;
    } else if (kind == ReduceKind::prod) {
      result = static_cast<T>(static_cast<U>(static_cast<std::uint64_t>(result) * wide));
    } else if (kind == ReduceKind::min) {
      result = std::min(result, x);
    } else if (kind == ReduceKind::max) {
      result = std::max(result, x);
    } else {
      result = static_cast<T>(static_cast<U>(static_cast<std::uint64_t>(result) + wide));
    }
  }
  if (options.divide_result) {
    result = static_cast<T>(static_cast<Wide>(result) / options.divisor);
  }
  return static_cast<U>(result);
}

inline std::uint64_t reduce(DataType type, ReduceKind kind, const std::vector<Term>& terms,
                            const CombineOptions& options = {}) {
  switch (type) {
    case DataType::int8:
      return reduce_integers<std::int8_t>(kind, terms, options);
    case DataType::uint8:
      return reduce_integers<std::uint8_t>(kind, terms, options);
    case DataType::int32:
      return reduce_integers<std::int32_t>(kind, terms, options);
    case DataType::uint32:
      return reduce_integers<std::uint32_t>(kind, terms, options);
    case DataType::int64:
      return reduce_integers<std::int64_t>(kind, terms, options);
    case DataType::uint64:
      return reduce_integers<std::uint64_t>(kind, terms, options);
    case DataType::float64:
      return reduce_floats<double>(type, kind, terms, options.divisor);
    default:
      return reduce_floats<float>(type, kind, terms, options.divisor);
  }
}

inline bool is_nan(DataType type, std::uint64_t bits) {
  if (!is_float(type)) return false;
  return std::isnan(float_from<double>(type, bits));
}

inline std::uint64_t element(DataType type, const void* data, std::size_t i) {
  std::uint64_t bits = 0;
  const std::size_t size = size_of(type);
  std::memcpy(&bits, static_cast<const char*>(data) + i * size, size);
  return bits;
}

// Equal bits, or a NaN on both sides.
inline bool same(DataType type, std::uint64_t a, std::uint64_t b) {
  return a == b || (is_nan(type, a) && is_nan(type, b));
}

}  // namespace tutti::reference

#include "bindings/mpi/op_kernels.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "bindings/mpi/wide_numbers.h"
#include "core/float_types.h"

namespace tutti::mpi {
namespace {

using Kind = Operator::Kind;

/// A 16-bit float, which is computed with as a float and rounded when it is stored.
struct Half {
  std::uint16_t code;
};

template <class T>
struct Complex {
  T real, imaginary;
};

/// The numbers that a stored element stands for in arithmetic.
template <class T>
auto widened(T stored) {
  if constexpr (std::is_same_v<T, Half>) {
    return detail::widen(detail::kFloat16, stored.code);
  } else {
    return stored;
  }
}

template <class T, class Wide>
T narrowed(Wide number) {
  if constexpr (std::is_same_v<T, Half>) {
    return {
        static_cast<std::uint16_t>(detail::narrow(detail::kFloat16, static_cast<double>(number)))};
  } else {
    return static_cast<T>(number);
  }
}

template <class T>
inline constexpr bool kFloating = std::is_floating_point_v<T> || std::is_same_v<T, Float128>;

/// Integers wrap: they are computed with as unsigned numbers, of at least the width of an int.
template <class T>
auto wrapping(T number) {
  if constexpr (kFloating<T>) {
    return number;
  } else if constexpr (sizeof(T) == 16) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<Wide>(number);
  } else {
    return static_cast<std::common_type_t<std::make_unsigned_t<T>, unsigned>>(number);
  }
}

template <class T>
bool is_nan(T number) {
  return number != number;  // of integers: never
}

template <class T>
bool sign_of_zero(T number) {
  if constexpr (kFloating<T>) {
    return std::signbit(static_cast<long double>(number));
  } else {
    return false;
  }
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrapping(a) + wrapping(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrapping(a) * wrapping(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    if constexpr (std::is_floating_point_v<T>) {  // with C's rules for infinities
      const std::complex<T> c =
          std::complex<T>(a.real, a.imaginary) * std::complex<T>(b.real, b.imaginary);
      return {c.real(), c.imag()};
    } else {
      return {a.real * b.real - a.imaginary * b.imaginary,
              a.real * b.imaginary + a.imaginary * b.real};
    }
  }
};

template <bool kLargest>
struct Extreme {
  template <class T>
  T operator()(T a, T b) const {
    if (is_nan(a)) return a;
    if (is_nan(b)) return b;
    if (a == b) return sign_of_zero(a) == kLargest ? b : a;
    return (a < b) == kLargest ? b : a;
  }
};

struct LogicalAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 && b != 0);
  }
};
struct LogicalOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 || b != 0);
  }
};
struct LogicalXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) != (b != 0));
  }
};
struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class Operation, class T>
void loop(const void* in, void* in_out, std::size_t n) {
  const auto* a = static_cast<const std::byte*>(in);
  auto* b = static_cast<std::byte*>(in_out);
  for (std::size_t i = 0; i < n; ++i, a += sizeof(T), b += sizeof(T)) {
    store(b, narrowed<T>(Operation{}(widened(load<T>(a)), widened(load<T>(b)))));
  }
}

template <class Operation, class T>
void complex_loop(const void* in, void* in_out, std::size_t n) {
  const auto* a = static_cast<const std::byte*>(in);
  auto* b = static_cast<std::byte*>(in_out);
  constexpr std::size_t kPart = sizeof(T);
  using Wide = decltype(widened(T{}));
  for (std::size_t i = 0; i < n; ++i, a += 2 * kPart, b += 2 * kPart) {
    const Complex<Wide> x{widened(load<T>(a)), widened(load<T>(a + kPart))};
    const Complex<Wide> y{widened(load<T>(b)), widened(load<T>(b + kPart))};
    const Complex<Wide> z = Operation{}(x, y);
    store(b, narrowed<T>(z.real));
    store(b + kPart, narrowed<T>(z.imaginary));
  }
}

/// One operation on all integers, or null.
template <class Operation>
Kernel integer_kernel(Element element) {
  switch (element) {
    case Element::int8:
      return loop<Operation, std::int8_t>;
    case Element::int16:
      return loop<Operation, std::int16_t>;
    case Element::int32:
      return loop<Operation, std::int32_t>;
    case Element::int64:
    case Element::c_long:
      return loop<Operation, std::int64_t>;
    case Element::int128:
      return loop<Operation, Int128>;
    case Element::uint8:
      return loop<Operation, std::uint8_t>;
    case Element::uint16:
      return loop<Operation, std::uint16_t>;
    case Element::uint32:
      return loop<Operation, std::uint32_t>;
    case Element::uint64:
    case Element::c_unsigned_long:
      return loop<Operation, std::uint64_t>;
    default:
      return nullptr;
  }
}

template <class Operation>
Kernel float_kernel(Element element) {
  switch (element) {
    case Element::float16:
      return loop<Operation, Half>;
    case Element::float32:
      return loop<Operation, float>;
    case Element::float64:
      return loop<Operation, double>;
    case Element::extended:
      return loop<Operation, long double>;
    case Element::float128:
      return loop<Operation, Float128>;
    default:
      return nullptr;  // bfloat16 is one of Tutti's own types
  }
}

template <class Operation>
Kernel complex_kernel(Element element) {
  switch (element) {
    case Element::complex_float16:
      return complex_loop<Operation, Half>;
    case Element::complex_float32:
      return complex_loop<Operation, float>;
    case Element::complex_float64:
      return complex_loop<Operation, double>;
    case Element::complex_extended:
      return complex_loop<Operation, long double>;
    case Element::complex_float128:
      return complex_loop<Operation, Float128>;
    default:
      return nullptr;
  }
}

template <class Operation>
Kernel truth_kernel(Element element) {
  switch (element) {
    case Element::boolean:
    case Element::logical1:
      return loop<Operation, std::uint8_t>;
    case Element::logical2:
      return loop<Operation, std::uint16_t>;
    case Element::logical4:
      return loop<Operation, std::uint32_t>;
    case Element::logical8:
      return loop<Operation, std::uint64_t>;
    case Element::logical16:
      return loop<Operation, Int128>;
    default:
      return integer_kernel<Operation>(element);
  }
}

template <class Operation>
Kernel number_kernel(Element element) {
  const Kernel kernel = integer_kernel<Operation>(element);
  return kernel != nullptr ? kernel : float_kernel<Operation>(element);
}

template <class Operation>
Kernel arithmetic_kernel(Element element) {
  const Kernel kernel = number_kernel<Operation>(element);
  return kernel != nullptr ? kernel : complex_kernel<Operation>(element);
}

template <class Operation>
Kernel bit_kernel(Element element) {
  return integer_kernel<Operation>(element == Element::byte ? Element::uint8 : element);
}

}  // namespace

Kernel kernel_of(Kind kind, Element element) {
  switch (kind) {
    case Kind::sum:
      return arithmetic_kernel<Sum>(element);
    case Kind::prod:
      return arithmetic_kernel<Product>(element);
    case Kind::min:
      return number_kernel<Extreme<false>>(element);
    case Kind::max:
      return number_kernel<Extreme<true>>(element);
    case Kind::logical_and:
      return truth_kernel<LogicalAnd>(element);
    case Kind::logical_or:
      return truth_kernel<LogicalOr>(element);
    case Kind::logical_xor:
      return truth_kernel<LogicalXor>(element);
    case Kind::bit_and:
      return bit_kernel<BitAnd>(element);
    case Kind::bit_or:
      return bit_kernel<BitOr>(element);
    case Kind::bit_xor:
      return bit_kernel<BitXor>(element);
    default:
      return nullptr;
  }
}

// --- Pairs of a value and its index

namespace {

/// Whether pair a wins: by its value, a NaN before any number; then by the lower index; then -0
/// before +0.
template <class Value, class Index>
bool wins(bool largest, Value value_a, Index index_a, Value value_b, Index index_b) {
  if (is_nan(value_a) != is_nan(value_b)) return is_nan(value_a);
  if (!is_nan(value_a) && value_a != value_b) return (value_a > value_b) == largest;
  if (index_a != index_b) return index_a < index_b;
  return sign_of_zero(value_a) && !sign_of_zero(value_b);
}

template <class Value, class Index>
void pair_loop(bool largest, std::size_t offset, std::size_t stride, const void* in, void* in_out,
               std::size_t n) {
  const auto* a = static_cast<const std::byte*>(in);
  auto* b = static_cast<std::byte*>(in_out);
  for (std::size_t i = 0; i < n; ++i, a += stride, b += stride) {
    const auto value = load<Value>(a);
    const auto index = load<Index>(a + offset);
    if (wins(largest, value, index, load<Value>(b), load<Index>(b + offset))) {
      store(b, value);
      store(b + offset, index);
    }
  }
}

using PairKernel = void (*)(bool, std::size_t, std::size_t, const void*, void*, std::size_t);

PairKernel pair_kernel(Element value, Element index) {
  if (index == Element::float32 && value == index) return pair_loop<float, float>;
  if (index == Element::float64 && value == index) return pair_loop<double, double>;
  if (index != Element::int32) return nullptr;
  switch (value) {
    case Element::int16:
      return pair_loop<std::int16_t, int>;
    case Element::int32:
      return pair_loop<std::int32_t, int>;
    case Element::int64:
    case Element::c_long:
      return pair_loop<std::int64_t, int>;
    case Element::float32:
      return pair_loop<float, int>;
    case Element::float64:
      return pair_loop<double, int>;
    case Element::extended:
      return pair_loop<long double, int>;
    default:
      return nullptr;
  }
}

}  // namespace

bool has_pair_kernel(const Type::Pair& pair) {
  return pair_kernel(pair.value, pair.index) != nullptr;
}

void combine_pairs(bool largest, const Type::Pair& pair, std::size_t stride, const void* in,
                   void* in_out, std::size_t n) {
  pair_kernel(pair.value, pair.index)(largest, pair.index_offset, stride, in, in_out, n);
}

}  // namespace tutti::mpi

// Every predefined operator on every predefined type, against plain arithmetic, and on what the
// edges of docs/semantics.md promise.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "bindings/mpi/error.h"
#include "bindings/mpi/op.h"
#include "bindings/mpi/type_make.h"

namespace tutti::mpi::test {
namespace {

constexpr int kCount = 37;

template <class T>
std::vector<T> reduced(std::vector<T> in, std::vector<T> in_out, MPI_Op op, MPI_Datatype type) {
  operator_of(op).check(type_of(type));
  operator_of(op).apply(in.data(), in_out.data(), static_cast<MPI_Count>(in.size()), type_of(type),
                        type);
  return in_out;
}

/// Compares with `expected` on random numbers of the type.
template <class T>
void expect(MPI_Op op, MPI_Datatype type, const std::function<T(T, T)>& expected) {
  std::mt19937_64 random(3);
  std::vector<T> a(kCount), b(kCount), c(kCount);
  for (int i = 0; i < kCount; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if constexpr (std::is_floating_point_v<T>) {
      a[k] = static_cast<T>(static_cast<double>(random() % 1000) - 500) / 8;
      b[k] = static_cast<T>(static_cast<double>(random() % 1000) - 500) / 8;
    } else {
      a[k] = static_cast<T>(i % 5 == 0 ? 0 : random());
      b[k] = static_cast<T>(i % 7 == 0 ? 0 : random());
    }
    c[k] = expected(a[k], b[k]);
  }
  EXPECT_EQ(reduced(a, b, op, type), c) << type_of(type).name();
}

template <class T>
void expect_integers(MPI_Datatype type) {
  using U = std::make_unsigned_t<T>;
  expect<T>(MPI_SUM, type, [](T a, T b) {
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  });
  expect<T>(MPI_PROD, type, [](T a, T b) {
    return static_cast<T>(
        static_cast<U>(std::uint64_t{static_cast<U>(a)} * std::uint64_t{static_cast<U>(b)}));
  });
  expect<T>(MPI_MIN, type, [](T a, T b) { return std::min(a, b); });
  expect<T>(MPI_MAX, type, [](T a, T b) { return std::max(a, b); });
  expect<T>(MPI_LAND, type, [](T a, T b) { return static_cast<T>(a && b); });
  expect<T>(MPI_LOR, type, [](T a, T b) { return static_cast<T>(a || b); });
  expect<T>(MPI_LXOR, type, [](T a, T b) { return static_cast<T>(!a != !b); });
  expect<T>(MPI_BAND, type, [](T a, T b) { return static_cast<T>(a & b); });
  expect<T>(MPI_BOR, type, [](T a, T b) { return static_cast<T>(a | b); });
  expect<T>(MPI_BXOR, type, [](T a, T b) { return static_cast<T>(a ^ b); });
}

template <class T>
void expect_floats(MPI_Datatype type) {
  expect<T>(MPI_SUM, type, [](T a, T b) { return a + b; });
  expect<T>(MPI_PROD, type, [](T a, T b) { return a * b; });
  expect<T>(MPI_MIN, type, [](T a, T b) { return std::min(a, b); });
  expect<T>(MPI_MAX, type, [](T a, T b) { return std::max(a, b); });
}

TEST(Operators, IntegersOfCFortranAndMpi) {
  for (const MPI_Datatype t : {MPI_SIGNED_CHAR, MPI_INT8_T, MPI_INTEGER1, MPI_CHAR})
    expect_integers<std::int8_t>(t);
  for (const MPI_Datatype t : {MPI_UNSIGNED_CHAR, MPI_UINT8_T}) expect_integers<std::uint8_t>(t);
  for (const MPI_Datatype t : {MPI_SHORT, MPI_INT16_T, MPI_INTEGER2})
    expect_integers<std::int16_t>(t);
  for (const MPI_Datatype t : {MPI_UNSIGNED_SHORT, MPI_UINT16_T}) expect_integers<std::uint16_t>(t);
  for (const MPI_Datatype t : {MPI_INT, MPI_INT32_T, MPI_INTEGER, MPI_INTEGER4})
    expect_integers<std::int32_t>(t);
  for (const MPI_Datatype t : {MPI_UNSIGNED, MPI_UINT32_T}) expect_integers<std::uint32_t>(t);
  for (const MPI_Datatype t :
       {MPI_LONG, MPI_LONG_LONG, MPI_INT64_T, MPI_INTEGER8, MPI_AINT, MPI_OFFSET, MPI_COUNT}) {
    expect_integers<std::int64_t>(t);
  }
  for (const MPI_Datatype t : {MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT64_T}) {
    expect_integers<std::uint64_t>(t);
  }
}

TEST(Operators, Floats) {
  for (const MPI_Datatype t : {MPI_FLOAT, MPI_REAL, MPI_REAL4}) expect_floats<float>(t);
  for (const MPI_Datatype t : {MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL8})
    expect_floats<double>(t);
  expect_floats<long double>(MPI_LONG_DOUBLE);
}

TEST(Operators, ComplexNumbersHaveSumsAndProductsAlone) {
  using C = std::complex<double>;
  const std::vector<C> a{{1, 2}, {-3, 0.5}}, b{{4, -1}, {2, 8}};
  EXPECT_EQ(reduced(a, b, MPI_SUM, MPI_C_DOUBLE_COMPLEX),
            (std::vector<C>{a[0] + b[0], a[1] + b[1]}));
  EXPECT_EQ(reduced(a, b, MPI_PROD, MPI_C_DOUBLE_COMPLEX),
            (std::vector<C>{a[0] * b[0], a[1] * b[1]}));
  EXPECT_THROW(operator_of(MPI_MAX).check(type_of(MPI_C_DOUBLE_COMPLEX)), Failure);
}

TEST(Operators, NumbersOf16BitsAreRoundedOnce) {
  const std::vector<std::uint16_t> ones{0x3C00},
      tiny{0x1000};  // 1, and 2^-11: half of the last digit of 1
  EXPECT_EQ(reduced(ones, tiny, MPI_SUM, MPI_REAL2), std::vector<std::uint16_t>{0x3C00});
  using Complex = std::array<std::uint16_t, 2>;
  const std::vector<Complex> numbers{Complex{0x4000, 0x4200}};  // 2 + 3i, whose square is -5 + 12i
  EXPECT_EQ(reduced(numbers, numbers, MPI_PROD, MPI_COMPLEX4),
            (std::vector<Complex>{Complex{0xC500, 0x4A00}}));
}

TEST(Operators, IntegersOf128BitsWrap) {
  __extension__ using Wide = __int128;
  const Wide most = ~(static_cast<Wide>(1) << 127);
  const Wide a[] = {most};
  Wide b[] = {2};
  operator_of(MPI_SUM).apply(a, b, 1, type_of(MPI_INTEGER16), MPI_INTEGER16);
  EXPECT_TRUE(b[0] == (static_cast<Wide>(1) << 127) + 1);
}

TEST(Operators, ANanWinsInMinAndMaxWhicheverSideHasIt) {
  const auto check = [](auto zero, MPI_Datatype type) {
    using T = decltype(zero);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    for (const MPI_Op op : {MPI_MIN, MPI_MAX}) {
      const std::vector<T> result = reduced<T>({nan, 1, nan}, {1, nan, nan}, op, type);
      for (const T value : result) EXPECT_TRUE(std::isnan(value)) << type_of(type).name();
    }
  };
  check(0.0F, MPI_FLOAT);
  check(0.0, MPI_DOUBLE);
  check(0.0L, MPI_LONG_DOUBLE);
}

TEST(Operators, MinusZeroIsBelowZero) {
  const auto check = [](auto zero, MPI_Datatype type) {
    using T = decltype(zero);
    for (const T value : reduced<T>({zero, -zero}, {-zero, zero}, MPI_MIN, type))
      EXPECT_TRUE(std::signbit(value));
    for (const T value : reduced<T>({zero, -zero}, {-zero, zero}, MPI_MAX, type))
      EXPECT_FALSE(std::signbit(value));
  };
  check(0.0F, MPI_FLOAT);
  check(0.0, MPI_DOUBLE);
  check(0.0L, MPI_LONG_DOUBLE);
}

struct DoubleInt {
  double value;
  int index;
};

std::pair<double, int> located(DoubleInt a, DoubleInt b, MPI_Op op) {
  operator_of(op).check(type_of(MPI_DOUBLE_INT));
  operator_of(op).apply(&a, &b, 1, type_of(MPI_DOUBLE_INT), MPI_DOUBLE_INT);
  return {b.value, b.index};
}

TEST(Operators, LocationsTakeTheLeastIndexAmongEqualValues) {
  EXPECT_EQ(located({1, 5}, {2, 3}, MPI_MINLOC), std::pair(1.0, 5));
  EXPECT_EQ(located({1, 5}, {2, 3}, MPI_MAXLOC), std::pair(2.0, 3));
  for (const MPI_Op op : {MPI_MINLOC, MPI_MAXLOC}) {
    EXPECT_EQ(located({4, 5}, {4, 3}, op), std::pair(4.0, 3));
    EXPECT_EQ(located({4, 3}, {4, 5}, op), std::pair(4.0, 3));
  }
}

TEST(Operators, LocationsOfANanAreTheSameInAnyOrder) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const MPI_Op op : {MPI_MINLOC, MPI_MAXLOC}) {
    const std::vector<DoubleInt> values{{1, 0}, {nan, 1}, {-3, 2}, {nan, 3}};
    std::vector<int> order{0, 1, 2, 3};
    do {
      DoubleInt all = values[static_cast<std::size_t>(order[0])];
      for (std::size_t i = 1; i < 4; ++i) {
        const auto [value, index] = located(values[static_cast<std::size_t>(order[i])], all, op);
        all = {value, index};
      }
      EXPECT_TRUE(std::isnan(all.value));
      EXPECT_EQ(all.index, 1);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Operators, PairsOfAllKindsAreCompared) {
  std::set<std::string> done;
  for (const MPI_Datatype handle :
       {MPI_SHORT_INT, MPI_2INT, MPI_LONG_INT, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_DOUBLE_INT,
        MPI_2REAL, MPI_2DOUBLE_PRECISION, MPI_2INTEGER}) {
    const Type& type = type_of(handle);
    SCOPED_TRACE(type.name());
    std::vector<std::byte> low(static_cast<std::size_t>(type.extent())), high(low.size());
    const auto put = [&](std::vector<std::byte>& pair, int value, int index) {
      const auto store = [&](Element element, std::size_t at, int number) {
        switch (element) {
          case Element::int16: {
            const auto v = static_cast<short>(number);
            std::memcpy(&pair[at], &v, sizeof v);
            break;
          }
          case Element::int32:
            std::memcpy(&pair[at], &number, sizeof number);
            break;
          case Element::c_long: {
            const long v = number;
            std::memcpy(&pair[at], &v, sizeof v);
            break;
          }
          case Element::float32: {
            const auto v = static_cast<float>(number);
            std::memcpy(&pair[at], &v, sizeof v);
            break;
          }
          case Element::float64: {
            const double v = number;
            std::memcpy(&pair[at], &v, sizeof v);
            break;
          }
          default: {
            const long double v = number;
            std::memcpy(&pair[at], &v, 10);
            break;
          }
        }
      };
      store(type.pair()->value, 0, value);
      store(type.pair()->index, type.pair()->index_offset, index);
    };
    put(low, -7, 2);
    put(high, 9, 1);
    auto result = low;
    operator_of(MPI_MAXLOC).apply(high.data(), result.data(), 1, type, handle);
    EXPECT_EQ(result, high);
    operator_of(MPI_MINLOC).apply(low.data(), result.data(), 1, type, handle);
    EXPECT_EQ(result, low);
    done.insert(type.name());
  }
  EXPECT_EQ(done.size(), 9u);
}

TEST(Operators, WhatTheStandardDoesNotDefineIsRefused) {
  int defined = 0, refused = 0;
  for (const MPI_Op op : {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR,
                          MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC}) {
    for (std::uintptr_t value = 0x201; value < 0x300; ++value) {
      const Type* type = types().find(reinterpret_cast<MPI_Datatype>(value));
      if (type == nullptr) continue;
      try {
        operator_of(op).check(*type);
        ++defined;
        std::vector<std::byte> a(static_cast<std::size_t>(3 * type->extent())), b = a;
        operator_of(op).apply(a.data(), b.data(), 3, *type, reinterpret_cast<MPI_Datatype>(value));
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.error_class(), MPI_ERR_OP);
        ++refused;
      }
    }
  }
  const auto defines = [](MPI_Op op, MPI_Datatype type) {
    try {
      operator_of(op).check(type_of(type));
      return true;
    } catch (const Failure&) {
      return false;
    }
  };
  EXPECT_TRUE(defines(MPI_BAND, MPI_BYTE));
  EXPECT_FALSE(defines(MPI_SUM, MPI_BYTE));
  EXPECT_FALSE(defines(MPI_BAND, MPI_DOUBLE));
  EXPECT_TRUE(defines(MPI_LOR, MPI_C_BOOL));
  EXPECT_FALSE(defines(MPI_SUM, MPI_C_BOOL));
  EXPECT_FALSE(defines(MPI_SUM, MPI_WCHAR));
  EXPECT_FALSE(defines(MPI_SUM, MPI_DOUBLE_INT));
  EXPECT_FALSE(defines(MPI_MINLOC, MPI_DOUBLE));
  EXPECT_EQ(defined + refused, 12 * 72);
}

TEST(Operators, NativeOnesAreTuttisOwn) {
  const auto native = [](MPI_Op op, const Type& type) { return operator_of(op).native(type); };
  EXPECT_EQ(native(MPI_SUM, type_of(MPI_DOUBLE))->type, DataType::float64);
  EXPECT_EQ(native(MPI_MAX, type_of(MPI_INT))->kind, ReduceKind::max);
  EXPECT_EQ(native(MPI_SUM, type_of(MPI_C_FLOAT_COMPLEX))->elements, 2u);
  EXPECT_FALSE(native(MPI_PROD, type_of(MPI_C_FLOAT_COMPLEX)));
  EXPECT_FALSE(native(MPI_SUM, type_of(MPI_SHORT)));
  EXPECT_FALSE(native(MPI_BAND, type_of(MPI_INT)));
  EXPECT_FALSE(native(MPI_MINLOC, type_of(MPI_2INT)));
  EXPECT_EQ(native(MPI_SUM, *Type::duplicate(shared_type(MPI_LONG)))->type, DataType::int64);
}

TEST(Operators, AFunctionGetsItsTypeAndNoMoreThanItsCountHolds) {
  std::vector<MPI_Count> calls;
  const Operator op(
      [&](void* in, void* in_out, MPI_Count count, MPI_Datatype type) {
        EXPECT_EQ(type, MPI_INT);
        calls.push_back(count);
        for (MPI_Count i = 0; i < count; ++i)
          static_cast<int*>(in_out)[i] -= static_cast<int*>(in)[i];
      },
      false, 4);
  const std::vector<int> a{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<int> b(10, 100);
  op.apply(a.data(), b.data(), 10, type_of(MPI_INT), MPI_INT);
  EXPECT_EQ(b, (std::vector<int>{99, 98, 97, 96, 95, 94, 93, 92, 91, 90}));
  EXPECT_EQ(calls, (std::vector<MPI_Count>{4, 4, 2}));
}

}  // namespace
}  // namespace tutti::mpi::test

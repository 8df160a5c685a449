// The scalar conversions of core/float_types.h against their definition: every code of every type,
// and every place where rounding changes its mind.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/float_types.h"
#include "tests/core/core_reference.h"
#include "tests/support/wide_floats.h"

namespace tutti {
namespace {

class FloatTypes : public testing::TestWithParam<DataType> {
 protected:
  const reference::NarrowFloat& format() const { return reference::narrow_float(GetParam()); }
  std::uint32_t codes() const { return 2 * format().sign(); }

  static std::uint32_t to(DataType type, double value) {
    switch (type) {
      case DataType::float16:
        return to_float16(value);
      case DataType::bfloat16:
        return to_bfloat16(value);
      case DataType::float8_e4m3:
        return to_float8_e4m3(value);
      default:
        return to_float8_e5m2(value);
    }
  }
  static float from(DataType type, std::uint32_t code) {
    switch (type) {
      case DataType::float16:
        return from_float16(static_cast<std::uint16_t>(code));
      case DataType::bfloat16:
        return from_bfloat16(static_cast<std::uint16_t>(code));
      case DataType::float8_e4m3:
        return from_float8_e4m3(static_cast<std::uint8_t>(code));
      default:
        return from_float8_e5m2(static_cast<std::uint8_t>(code));
    }
  }
  std::uint32_t to(double value) const { return to(GetParam(), value); }
  float from(std::uint32_t code) const { return from(GetParam(), code); }
};

TEST_P(FloatTypes, WidensEveryCode) {
  for (std::uint32_t code = 0; code < codes(); ++code) {
    const double expected = format().value(code);
    const double got = from(code);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << code;
    } else {
      ASSERT_EQ(got, expected) << code;
    }
    ASSERT_EQ(std::signbit(got), (code & format().sign()) != 0) << code;
  }
}

TEST_P(FloatTypes, EveryCodeSurvivesTheRoundTrip) {
  for (std::uint32_t code = 0; code < codes(); ++code) {
    const std::uint32_t sign = code & format().sign();
    const std::uint32_t expected = format().is_nan(code) ? sign | format().quiet_nan() : code;
    ASSERT_EQ(to(from(code)), expected);
  }
}

TEST_P(FloatTypes, RoundsToNearestEvenAtEveryBoundary) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto& values = format().magnitudes();
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;  // exact
    for (const double v : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, infinity),
                           std::nextafter(values[i], infinity)}) {
      ASSERT_EQ(to(v), format().round(v)) << v;
      ASSERT_EQ(to(-v), format().round(-v)) << -v;
    }
  }
}

TEST_P(FloatTypes, RoundsRandomFloats) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int i = 0; i < 100'000; ++i) {
    const float v = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(v)) continue;
    ASSERT_EQ(to(v), format().round(v)) << v;
  }
}

TEST_P(FloatTypes, TinyValuesBecomeZeroOfTheirSign) {
  EXPECT_EQ(to(DBL_TRUE_MIN), 0u);
  EXPECT_EQ(to(-DBL_TRUE_MIN), format().sign());
  EXPECT_EQ(to(DBL_MIN), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, FloatTypes,
                         testing::Values(DataType::float16, DataType::bfloat16,
                                         DataType::float8_e4m3, DataType::float8_e5m2),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(FloatTypesOverflow, IsInfinityOrNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_float16(65519.99), 0x7BFF);
  EXPECT_EQ(to_float16(65520.0), 0x7C00);
  EXPECT_EQ(to_float16(-infinity), 0xFC00);
  EXPECT_EQ(to_bfloat16(DBL_MAX), 0x7F80);
  EXPECT_EQ(to_bfloat16(FLT_MAX), 0x7F80);
  EXPECT_EQ(to_float8_e5m2(61439.0), 0x7B);
  EXPECT_EQ(to_float8_e5m2(61440.0), 0x7C);
  EXPECT_EQ(to_float8_e5m2(1e300), 0x7C);
  EXPECT_EQ(to_float8_e4m3(464.0), 0x7E);
  EXPECT_EQ(to_float8_e4m3(std::nextafter(464.0, 465.0)), 0x7F);
  EXPECT_EQ(to_float8_e4m3(480.0), 0x7F);
  EXPECT_EQ(to_float8_e4m3(512.0), 0x7F);
  EXPECT_EQ(to_float8_e4m3(-1e300), 0xFF);
  EXPECT_EQ(to_float8_e4m3(infinity), 0x7F);
}

TEST(FloatTypesNan, KeepsItsSign) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(to_float16(nan), 0x7E00);
  EXPECT_EQ(to_float16(std::copysign(nan, -1.0f)), 0xFE00);
  EXPECT_EQ(to_bfloat16(nan), 0x7FC0);
  EXPECT_EQ(to_float8_e4m3(std::copysign(nan, -1.0f)), 0xFF);
  EXPECT_EQ(to_float8_e5m2(nan), 0x7E);
}

}  // namespace
}  // namespace tutti

// The interpreter's conversions and comparisons of narrow floats against core/convert: all codes,
// and a million floats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/convert.h"
#include "tests/ptx/conversions.h"
#include "tests/ptx/operations.h"

namespace tutti::ptx {
namespace {

struct Narrow {
  DataType type;
  FloatFormat format;
  bool bytes;
};
const Narrow kNarrow[] = {{DataType::float16, kF16, false},
                          {DataType::bfloat16, kBF16, false},
                          {DataType::float8_e4m3, kE4M3, true},
                          {DataType::float8_e5m2, kE5M2, true}};

std::uint32_t code_at(const std::vector<std::uint16_t>& halves, bool bytes, std::size_t i) {
  if (!bytes) return halves[i];
  return i % 2 == 0 ? halves[i / 2] & 0xFF : halves[i / 2] >> 8;
}

TEST(Conversions, WidenEveryCodeAsCoreDoes) {
  for (const Narrow& n : kNarrow) {
    const std::size_t codes = n.bytes ? 256 : 65536;
    std::vector<std::uint16_t> all(n.bytes ? codes / 2 : codes);
    for (std::size_t i = 0; i < codes; ++i) {
      if (n.bytes) {
        all[i / 2] = static_cast<std::uint16_t>(all[i / 2] | i << (i % 2 * 8));
      } else {
        all[i] = static_cast<std::uint16_t>(i);
      }
    }
    std::vector<float> expected(codes);
    convert(all.data(), n.type, expected.data(), DataType::float32, codes);
    for (std::size_t i = 0; i < codes; ++i) {
      const float found = widen(n.format, code_at(all, n.bytes, i));
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(found)) << name(n.type) << " " << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected[i]))
            << name(n.type) << " " << i;
      }
    }
  }
}

TEST(Conversions, NarrowAMillionFloatsAsCoreDoes) {
  std::mt19937 random(5);
  std::vector<float> from(1 << 20);
  for (const Narrow& n : kNarrow) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::uint32_t bits = static_cast<std::uint32_t>(random());
      // Half of them where the format has its numbers, and of those some halfway between two.
      if (i % 2 == 0) {
        const int bias = (1 << (n.format.exponent - 1)) - 1;
        const auto exponent = static_cast<std::uint32_t>(
            127 - bias - n.format.mantissa - 2 +
            static_cast<int>(random() %
                             static_cast<std::uint32_t>(2 * bias + n.format.mantissa + 6)));
        bits = (bits & 0x807FFFFF) | (exponent & 0xFF) << 23;
        if (i % 4 == 0) bits &= ~((1u << (22 - n.format.mantissa)) - 1);
      }
      from[i] = std::bit_cast<float>(bits);
    }
    std::vector<std::uint16_t> expected(n.bytes ? from.size() / 2 : from.size());
    convert(from.data(), DataType::float32, expected.data(), n.type, from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::uint32_t there = code_at(expected, n.bytes, i);
      const std::uint32_t found = narrow(n.format, from[i], false);
      if (std::isnan(from[i])) {
        ASSERT_TRUE(std::isnan(widen(n.format, found))) << name(n.type) << " " << from[i];
        ASSERT_TRUE(std::isnan(widen(n.format, there))) << name(n.type) << " " << from[i];
      } else {
        ASSERT_EQ(found, there) << name(n.type) << " " << std::bit_cast<std::uint32_t>(from[i]);
      }
    }
  }
}

/// One instruction, by one lane.
std::uint64_t compute(const char* op, std::uint64_t a, std::uint64_t b) {
  std::vector<std::uint64_t> values(std::size_t{3} * kLanes);
  const Registers registers{values.data(), nullptr};
  registers.to(1)[4] = a;
  registers.to(2)[4] = b;
  const std::int32_t operands[] = {0, 1, 2};
  find_operation(op)->compute(registers, operands, 1u << 4);
  return registers.to(0)[4];
}

TEST(Conversions, TheFirstSourceIsTheUpperHalf) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  EXPECT_EQ(compute("cvt.rn.f16x2.f32", bits(1.0f), bits(-2.0f)), 0x3C00C000u);
  EXPECT_EQ(compute("cvt.rn.bf16x2.f32", bits(1.0f), bits(-2.0f)), 0x3F80C000u);
  EXPECT_EQ(compute("cvt.rn.satfinite.e4m3x2.f32", bits(1e9f), bits(1.0f)), 0x7E38u);
  EXPECT_EQ(compute("cvt.rn.satfinite.e5m2x2.f32", bits(1.0f), bits(-1e9f)), 0x3CFBu);
}

TEST(Minimum, OfANanIsANanAndOfZerosTheNegative) {
  const std::uint64_t nan = 0x7FC00001;
  const std::uint64_t one = std::bit_cast<std::uint32_t>(1.0f);
  const std::uint64_t minus_zero = 0x80000000;
  for (const char* op : {"min.NaN.f32", "max.NaN.f32"}) {
    EXPECT_EQ(compute(op, nan, one), 0x7FFFFFFFu) << op;
    EXPECT_EQ(compute(op, one, nan), 0x7FFFFFFFu) << op;
  }
  EXPECT_EQ(compute("min.NaN.f32", 0, minus_zero), minus_zero);
  EXPECT_EQ(compute("min.NaN.f32", minus_zero, 0), minus_zero);
  EXPECT_EQ(compute("max.NaN.f32", 0, minus_zero), 0u);
  EXPECT_EQ(compute("max.NaN.f32", minus_zero, 0), 0u);
}

}  // namespace
}  // namespace tutti::ptx

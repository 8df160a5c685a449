// Conversions of whole arrays against the scalar ones of float_types.h, which have tests of their
// own; every length, so that vectors and what is left after them are both tested.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/convert.h"
#include "core/error.h"
#include "core/float_types.h"
#include "tests/support/wide_floats.h"

namespace tutti {
namespace {

struct Narrow {
  DataType type;
  std::function<double(std::uint32_t)> widen;
  std::function<std::uint32_t(double)> narrow;
};
const std::vector<Narrow> kNarrow{
    {DataType::float16, [](std::uint32_t c) { return from_float16(static_cast<std::uint16_t>(c)); },
     to_float16},
    {DataType::bfloat16,
     [](std::uint32_t c) { return from_bfloat16(static_cast<std::uint16_t>(c)); }, to_bfloat16},
    {DataType::float8_e4m3,
     [](std::uint32_t c) { return from_float8_e4m3(static_cast<std::uint8_t>(c)); },
     to_float8_e4m3},
    {DataType::float8_e5m2,
     [](std::uint32_t c) { return from_float8_e5m2(static_cast<std::uint8_t>(c)); },
     to_float8_e5m2},
};

void expect_same(double value, double expected, const char* what, std::size_t i) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(value)) << what << " " << i;
  } else {
    ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(expected))
        << what << " " << i;
  }
}

/// Bit patterns of all kinds, and what lies around roundings.
std::vector<float> floats() {
  std::mt19937 random(5);
  std::vector<float> result;
  for (int i = 0; i < 50'000; ++i)
    result.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    for (const std::uint32_t low : {0u, 0x7FFFu, 0x8000u, 0x8001u, 0x1000u, 0xFFFFu}) {
      result.push_back(std::bit_cast<float>(i << 16 | low));
    }
  }
  return result;
}

TEST(Convert, WidensEveryCode) {
  for (const Narrow& n : kNarrow) {
    const std::size_t codes = std::size_t{1} << (8 * size_of(n.type));
    std::vector<std::uint8_t> in(codes * size_of(n.type));
    for (std::size_t c = 0; c < codes; ++c) {
      std::memcpy(in.data() + c * size_of(n.type), &c, size_of(n.type));
    }
    std::vector<float> out(codes);
    convert(in.data(), n.type, out.data(), DataType::float32, codes);
    std::vector<double> doubles(codes);
    convert(in.data(), n.type, doubles.data(), DataType::float64, codes);
    for (std::size_t c = 0; c < codes; ++c) {
      expect_same(out[c], n.widen(static_cast<std::uint32_t>(c)), "code", c);
      expect_same(doubles[c], n.widen(static_cast<std::uint32_t>(c)), "code", c);
    }
  }
}

TEST(Convert, NarrowsInOneRounding) {
  const std::vector<float> in = floats();
  std::vector<double> doubles;
  for (const float f : in) doubles.push_back(double{f} * (1 + 1e-12));
  std::vector<double> back(in.size());
  for (const Narrow& n : kNarrow) {
    std::vector<std::uint8_t> out(in.size() * size_of(n.type));
    const auto code = [&](std::size_t i) {
      std::uint32_t result = 0;
      std::memcpy(&result, out.data() + i * size_of(n.type), size_of(n.type));
      return result;
    };
    convert(in.data(), DataType::float32, out.data(), n.type, in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      expect_same(n.widen(code(i)), n.widen(n.narrow(in[i])), "float", i);
    }
    convert(doubles.data(), DataType::float64, out.data(), n.type, in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      expect_same(n.widen(code(i)), n.widen(n.narrow(doubles[i])), "double", i);
    }
  }
}

TEST(Convert, ConvertsEveryLengthAndTouchesNothingElse) {
  for (const Narrow& n : kNarrow) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<float> in(count + 1);
      for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 9);
      std::vector<std::uint8_t> out((count + 1) * size_of(n.type), 0xAA);
      convert(in.data(), DataType::float32, out.data(), n.type, count);
      for (std::size_t b = count * size_of(n.type); b < out.size(); ++b) ASSERT_EQ(out[b], 0xAA);
      std::vector<float> back(count + 1, -1);
      convert(out.data(), n.type, back.data(), DataType::float32, count);
      in[count] = -1;
      ASSERT_EQ(back, in);
    }
  }
}

TEST(Convert, GoesBetweenAnyTwoFloats) {
  const std::vector<DataType> types{DataType::float16,     DataType::bfloat16,
                                    DataType::float32,     DataType::float64,
                                    DataType::float8_e4m3, DataType::float8_e5m2};
  std::vector<float> in(1000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 9) - 4;
  for (const DataType a : types) {
    for (const DataType b : types) {
      std::vector<double> first(in.size()), second(in.size());  // room for any type
      std::vector<float> out(in.size());
      convert(in.data(), DataType::float32, first.data(), a, in.size());
      convert(first.data(), a, second.data(), b, in.size());
      convert(second.data(), b, out.data(), DataType::float32, in.size());
      EXPECT_EQ(out, in) << name(a) << " to " << name(b);
    }
  }
  int integer = 0;
  EXPECT_THROW(convert(&integer, DataType::int32, in.data(), DataType::float32, 1), Error);
  EXPECT_THROW(convert(in.data(), DataType::float32, &integer, DataType::int32, 1), Error);
}

TEST(AllFinite, FindsOneThatIsNotAtAnyPlace) {
  const std::vector<DataType> types{DataType::float16,     DataType::bfloat16,
                                    DataType::float32,     DataType::float64,
                                    DataType::float8_e4m3, DataType::float8_e5m2};
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DataType type : types) {
    for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
      for (std::size_t count = 1; count < 70; count += 3) {
        for (std::size_t at = 0; at < count; ++at) {
          std::vector<double> values(count, 200), memory(count);
          convert(values.data(), DataType::float64, memory.data(), type, count);
          ASSERT_TRUE(all_finite(memory.data(), type, count));
          values[at] = bad;
          convert(values.data(), DataType::float64, memory.data(), type, count);
          ASSERT_FALSE(all_finite(memory.data(), type, count)) << name(type) << " " << at;
        }
      }
    }
  }
  const std::vector<int> integers(10, -1);
  EXPECT_TRUE(all_finite(integers.data(), DataType::int32, integers.size()));
}

}  // namespace
}  // namespace tutti

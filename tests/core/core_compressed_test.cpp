// Compressed messages against a reference in double, bit for bit, with every instruction set of the
// machine; and the bound of the error, for numbers that are hard for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/compressed.h"
#include "core/convert.h"
#include "core/error.h"
#include "core_targets.h"

namespace tutti {
namespace {

constexpr DataType kTypes[] = {DataType::float16, DataType::bfloat16, DataType::float32};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// The elements of a call, as bytes of its type.
std::vector<std::uint8_t> stored(DataType type, const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes(values.size() * size_of(type));
  convert(values.data(), DataType::float32, bytes.data(), type, values.size());
  return bytes;
}
std::vector<float> widened(DataType type, const std::vector<std::uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  convert(bytes.data(), type, values.data(), DataType::float32, values.size());
  return values;
}

/// A block as core/compressed.h says it.
std::vector<std::uint8_t> packed(const std::vector<float>& block) {
  double most = 0;
  for (const float v : block) {
    if (std::isfinite(v)) most = std::max(most, std::fabs(double{v}));
  }
  const int exponent = std::max(most > 0 ? std::ilogb(most) - 6 : -126, -126);
  std::vector<std::uint8_t> bytes{static_cast<std::uint8_t>(exponent + 127)};
  for (const float v : block) {
    double steps = -128;
    if (std::isfinite(v)) {
      steps = std::clamp(std::nearbyint(std::ldexp(double{v}, -exponent)), -127.0, 127.0);
    }
    bytes.push_back(static_cast<std::uint8_t>(static_cast<std::int8_t>(steps)));
  }
  return bytes;
}
std::vector<float> unpacked(const std::vector<std::uint8_t>& bytes) {
  std::vector<float> block;
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    const auto steps = static_cast<std::int8_t>(bytes[i]);
    block.push_back(steps == -128 ? kNaN
                                  : static_cast<float>(std::ldexp(double(steps), bytes[0] - 127)));
  }
  return block;
}
template <class Block>
void for_each_block(DataType type, std::size_t count, Block&& visit) {
  for (std::size_t at = 0; at < count; at += compressed_block(type)) {
    visit(at, std::min(compressed_block(type), count - at));
  }
}
std::vector<std::uint8_t> all_packed(DataType type, const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for_each_block(type, values.size(), [&](std::size_t at, std::size_t n) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(at);
    const auto block = packed({first, first + static_cast<std::ptrdiff_t>(n)});
    bytes.insert(bytes.end(), block.begin(), block.end());
  });
  return bytes;
}
std::vector<float> all_unpacked(DataType type, const std::vector<std::uint8_t>& bytes,
                                std::size_t count) {
  std::vector<float> values;
  auto next = bytes.begin();
  for_each_block(type, count, [&](std::size_t, std::size_t n) {
    const auto end = next + static_cast<std::ptrdiff_t>(n + 1);
    const auto block = unpacked({next, end});
    values.insert(values.end(), block.begin(), block.end());
    next = end;
  });
  return values;
}

/// A case: its numbers as the type has them.
struct Numbers {
  const char* name;
  std::function<float(std::size_t)> at;
};
const std::vector<Numbers>& numbers() {
  static std::mt19937 random(11);
  static const std::vector<Numbers> all{
      {"normal", [](std::size_t) { return std::normal_distribution<float>()(random); }},
      {"zeros", [](std::size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; }},
      {"denormals",
       [](std::size_t i) { return std::bit_cast<float>(static_cast<std::uint32_t>(i * 77777)); }},
      {"tiny", [](std::size_t i) { return std::ldexp(1.0f + static_cast<float>(i % 7), -124); }},
      {"one huge", [](std::size_t i) { return i % 64 == 5 ? 60000.0f : 0.01f * float(i % 9); }},
      {"just below a power",  // 127.9 steps, which become 127
       [](std::size_t i) { return i % 2 == 0 ? 1.99f : -1.998f; }},
      {"ties", [](std::size_t i) { return i == 0 ? 1.0f : (float(i % 60) + 0.5f) / 64; }},
      {"largest", [](std::size_t i) { return i % 3 == 0 ? 3.3e38f : -3e38f; }},
      {"not finite",
       [](std::size_t i) {
         return i % 13 == 4   ? kInfinity
                : i % 17 == 3 ? -kInfinity
                : i % 19 == 1 ? kNaN
                              : float(i) - 40;
       }},
      {"all infinite", [](std::size_t i) { return i % 2 == 0 ? kInfinity : -kInfinity; }},
      {"bits", [](std::size_t) { return std::bit_cast<float>(std::uint32_t(random())); }},
  };
  return all;
}
std::vector<float> take(const Numbers& n, std::size_t count, DataType type) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(n.at(i));
  return widened(type, stored(type, values));
}

void expect_same(const std::vector<float>& values, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << what << " " << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << what << " " << i << ": " << values[i] << " for " << expected[i];
    }
  }
}

class Compressed : public testing::TestWithParam<std::int64_t> {};

TEST_P(Compressed, FollowsTheFormat) {
  const CombineTarget target(GetParam());
  for (const DataType type : kTypes) {
    for (const Numbers& n : numbers()) {
      for (const std::size_t count : {0, 1, 7, 16, 31, 32, 33, 64, 100, 517}) {
        const std::string what =
            std::string(name(type)) + " " + n.name + " x " + std::to_string(count);
        const auto values = take(n, count, type);
        const auto expected = all_packed(type, values);
        ASSERT_EQ(expected.size(), compressed_bytes(type, count)) << what;
        // Misaligned, with a guard behind.
        std::vector<std::uint8_t> bytes(expected.size() + 2, 0xAA);
        compress(type, stored(type, values).data(), bytes.data() + 1, count);
        EXPECT_EQ(bytes.front(), 0xAA) << what;
        EXPECT_EQ(bytes.back(), 0xAA) << what;
        ASSERT_EQ(std::vector(bytes.begin() + 1, bytes.end() - 1), expected) << what;
        std::vector<std::uint8_t> plain(count * size_of(type) + 2, 0xAA);
        decompress(type, expected.data(), plain.data() + 1, count);
        EXPECT_EQ(plain.front(), 0xAA) << what;
        EXPECT_EQ(plain.back(), 0xAA) << what;
        expect_same(widened(type, {plain.begin() + 1, plain.end() - 1}),
                    widened(type, stored(type, all_unpacked(type, expected, count))), what);
      }
    }
  }
}

TEST_P(Compressed, SumsInOrderAndCompressesOnce) {
  const CombineTarget target(GetParam());
  constexpr std::size_t kCount = 77;
  for (const DataType type : kTypes) {
    for (const Numbers& n : numbers()) {
      for (const bool divides : {false, true}) {
        const std::string what = std::string(name(type)) + " " + n.name + (divides ? " avg" : "");
        const auto a = take(n, kCount, type), b = take(numbers()[0], kCount, type),
                   c = take(n, kCount, type);
        const auto a_packed = all_packed(type, a), c_packed = all_packed(type, c);
        const auto b_stored = stored(type, b);
        const auto a_read = all_unpacked(type, a_packed, kCount);
        const auto c_read = all_unpacked(type, c_packed, kCount);
        std::vector<float> sum(kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          const float partial = a_read[i] + b[i];
          sum[i] = partial + c_read[i];
          if (divides) sum[i] /= 3.0f;
        }
        const auto expected = all_packed(type, sum);
        std::vector<std::uint8_t> one(expected.size()), other(expected.size());
        std::vector<std::uint8_t> plain(kCount * size_of(type));
        void* const destinations[] = {one.data(), other.data(), plain.data()};
        const Source sources[] = {{a_packed.data()}, {b_stored.data()}, {c_packed.data()}};
        const unsigned char compressed[] = {1, 0, 1};
        combine_compressed(type, destinations, 2, sources, compressed, kCount,
                           {.divisor = 3, .divide_result = divides});
        ASSERT_EQ(one, expected) << what;
        ASSERT_EQ(other, expected) << what;
        // The plain destination has what the others get, and not the sum.
        const auto passed_on = widened(type, stored(type, all_unpacked(type, expected, kCount)));
        expect_same(widened(type, plain), passed_on, what);
        // Without a compressed destination it is the sum, rounded to the type.
        combine_compressed(type, std::span(destinations).subspan(2), 0, sources, compressed, kCount,
                           {.divisor = 3, .divide_result = divides});
        expect_same(widened(type, plain), widened(type, stored(type, sum)), what);
      }
    }
  }
}

TEST_P(Compressed, ScalesPlainSources) {
  const CombineTarget target(GetParam());
  constexpr std::size_t kCount = 40;
  for (const DataType type : kTypes) {
    const auto a = take(numbers()[0], kCount, type);
    const auto a_stored = stored(type, a);
    std::uint64_t scalar = 0;
    std::memcpy(&scalar, stored(type, {1.375f}).data(), size_of(type));
    const Source source{a_stored.data(), Prescale::multiply, scalar};
    std::vector<float> scaled;
    for (const float v : a) scaled.push_back(v * 1.375f);
    std::vector<std::uint8_t> bytes(compressed_bytes(type, kCount));
    void* const to = bytes.data();
    const unsigned char plain = 0;
    combine_compressed(type, {&to, 1}, 1, {&source, 1}, {&plain, 1}, kCount);
    EXPECT_EQ(bytes, all_packed(type, scaled)) << name(type);
  }
}

TEST_P(Compressed, PassesOneOnBitForBit) {
  const CombineTarget target(GetParam());
  std::mt19937 random(3);
  for (const DataType type : kTypes) {
    // Any bytes: also those that compress() would not write.
    std::vector<std::uint8_t> from(compressed_bytes(type, 70)), to(from.size());
    for (auto& b : from) b = static_cast<std::uint8_t>(random());
    void* const destination = to.data();
    const Source source{from.data()};
    const unsigned char compressed = 1;
    combine_compressed(type, {&destination, 1}, 1, {&source, 1}, {&compressed, 1}, 70);
    EXPECT_EQ(to, from) << name(type);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Compressed, testing::ValuesIn(CombineTarget::all()),
                         [](const auto& target) {
                           return "Target" + std::to_string(target.index);
                         });

TEST(CompressedError, IsWithinTheBound) {
  for (const DataType type : kTypes) {
    for (const Numbers& n : numbers()) {
      const std::size_t count = 1000;
      const auto values = take(n, count, type);
      const auto read = all_unpacked(type, all_packed(type, values), count);
      for_each_block(type, count, [&](std::size_t at, std::size_t length) {
        double most = 0;
        for (std::size_t i = at; i < at + length; ++i) {
          if (std::isfinite(values[i])) most = std::max(most, std::fabs(double{values[i]}));
        }
        for (std::size_t i = at; i < at + length; ++i) {
          if (!std::isfinite(values[i])) {
            EXPECT_TRUE(std::isnan(read[i])) << n.name;
            continue;
          }
          const double bound = std::max(most / 127, std::ldexp(1.0, -127));
          EXPECT_LE(std::fabs(double{values[i]} - double{read[i]}), bound) << n.name << " " << i;
        }
      });
    }
  }
}

TEST(CompressedError, OtherTypesAreRefused) {
  std::uint8_t in[8] = {}, out[16];
  for (const DataType type : all_types()) {
    if (is_compressible(type)) continue;
    EXPECT_THROW(compress(type, in, out, 1), Error) << name(type);
  }
}

}  // namespace
}  // namespace tutti

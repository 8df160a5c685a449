// combine_wide(): a sum in two parts, with partial sums that are stored in float32, has the bits of
// combine() of all sources at once; with each type, operator, number of sources and way to scale
// them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/convert.h"
#include "core/error.h"
#include "core/wide.h"

namespace tutti {
namespace {

constexpr DataType kWideTypes[] = {DataType::float16, DataType::bfloat16, DataType::float8_e4m3,
                                   DataType::float8_e5m2};
using Bytes = std::vector<std::uint8_t>;

/// Numbers whose sums need more digits than the type has.
Bytes numbers(DataType type, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) {
    v = std::ldexp(1.0F + static_cast<float>(random() % 4096) / 4096,
                   static_cast<int>(random() % 6) - 3);
    if (random() % 2 == 0) v = -v;
  }
  Bytes bytes(count * size_of(type));
  convert(values.data(), DataType::float32, bytes.data(), type, count);
  return bytes;
}

std::uint64_t scalar_of(DataType type, float value) {
  std::uint64_t bits = 0;
  convert(&value, DataType::float32, &bits, type, 1);
  return bits;
}

/// The call's sources, from `first` to `end`.
std::vector<Source> sources(const std::vector<Bytes>& inputs, std::size_t first, std::size_t end,
                            Prescale prescale, DataType type) {
  std::vector<Source> all;
  for (std::size_t k = first; k < end; ++k) {
    all.push_back({inputs[k].data(), prescale,
                   prescale == Prescale::multiply
                       ? scalar_of(type, 0.75F + static_cast<float>(k % 7) / 8)
                       : 0});
  }
  return all;
}

struct Case {
  DataType type;
  ReduceKind kind;
  Prescale prescale;
  bool divides;
};

/// In two parts, split where the canonical order splits, to two destinations; the results of
/// combine().
void expect_equal(const Case& c, std::size_t n, std::size_t count, std::size_t shift) {
  std::vector<Bytes> inputs;
  for (std::size_t k = 0; k < n; ++k) {
    inputs.push_back(numbers(c.type, count, static_cast<std::uint32_t>(1 + k + 100 * n)));
  }
  CombineOptions options;
  options.canonical = true;
  options.divisor = static_cast<std::uint32_t>(n);
  Bytes expected(count * size_of(c.type));
  void* const to = expected.data();
  options.divide_result = c.divides;
  combine(c.type, c.kind, {&to, 1}, sources(inputs, 0, n, c.prescale, c.type), count, options);

  const std::size_t half = std::bit_floor(n - 1);
  std::vector<float> wide[2];
  options.divide_result = false;
  for (const std::size_t part : {0U, 1U}) {
    const auto from = part == 0 ? sources(inputs, 0, half, c.prescale, c.type)
                                : sources(inputs, half, n, c.prescale, c.type);
    wide[part].assign(count + 1, -1.0F);
    void* const sum = wide[part].data();
    const Bytes plain(from.size(), 0);
    combine_wide(c.type, c.kind, {&sum, 1}, 1, from, plain, count, options);
    EXPECT_EQ(wide[part][count], -1.0F) << "writes past the end";
  }
  options.divide_result = c.divides;
  Bytes results[2];
  for (Bytes& r : results) r.assign(count * size_of(c.type) + shift + 1, 0xA5);
  void* const out[] = {results[0].data() + shift, results[1].data() + shift};
  const Source partial[] = {{wide[0].data()}, {wide[1].data()}};
  const unsigned char both[] = {1, 1};
  combine_wide(c.type, c.kind, out, 0, partial, both, count, options);
  for (const Bytes& r : results) {
    EXPECT_EQ(std::memcmp(r.data() + shift, expected.data(), expected.size()), 0)
        << name(c.type) << " " << name(c.kind) << ", " << n << " sources, " << count << " elements";
    EXPECT_EQ(r.back(), 0xA5);
  }
}

TEST(CombineWide, OfPartialSumsHasTheBitsOfAllSourcesAtOnce) {
  for (const DataType type : kWideTypes) {
    for (const Case& c : {Case{type, ReduceKind::sum, Prescale::none, false},
                          {type, ReduceKind::avg, Prescale::none, true},
                          {type, ReduceKind::pre_multiplied_sum, Prescale::multiply, false},
                          {type, ReduceKind::prod, Prescale::none, false},
                          {type, ReduceKind::max, Prescale::none, false}}) {
      for (const std::size_t n : {2U, 3U, 5U, 8U, 67U}) {
        for (const std::size_t count : {1U, 33U, 64U, 5003U}) expect_equal(c, n, count, count % 2);
      }
    }
  }
}

// The test above can fail: a partial sum that is rounded to the type gives other bits.
TEST(CombineWide, MakesADifference) {
  for (const DataType type : kWideTypes) {
    constexpr std::size_t kCount = 500;
    std::vector<Bytes> inputs;
    for (std::uint32_t k = 0; k < 4; ++k) inputs.push_back(numbers(type, kCount, k));
    Bytes at_once(kCount * size_of(type)), parts[2] = {at_once, at_once}, twice = at_once;
    void* to = at_once.data();
    combine(type, ReduceKind::sum, {&to, 1}, sources(inputs, 0, 4, Prescale::none, type), kCount,
            {.canonical = true});
    for (const std::size_t p : {0U, 1U}) {
      to = parts[p].data();
      combine(type, ReduceKind::sum, {&to, 1},
              sources(inputs, 2 * p, 2 * p + 2, Prescale::none, type), kCount);
    }
    to = twice.data();
    const Source sums[] = {{parts[0].data()}, {parts[1].data()}};
    combine(type, ReduceKind::sum, {&to, 1}, sums, kCount);
    EXPECT_NE(at_once, twice) << name(type);
  }
}

TEST(CombineWide, MixesWidthsOnBothSides) {
  for (const DataType type : kWideTypes) {
    constexpr std::size_t kCount = 1003;
    const Bytes plain = numbers(type, kCount, 7);
    std::vector<float> sum(kCount), wide(kCount), expected(kCount);
    convert(plain.data(), type, expected.data(), DataType::float32, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      wide[i] = 1.0F + static_cast<float>(i) / 1024;
      expected[i] += wide[i];
    }
    Bytes rounded(kCount * size_of(type)), should = rounded;
    convert(expected.data(), DataType::float32, should.data(), type, kCount);
    void* const to[] = {sum.data(), rounded.data()};
    const Source from[] = {{plain.data()}, {wide.data()}};
    const unsigned char widths[] = {0, 1};
    combine_wide(type, ReduceKind::sum, to, 1, from, widths, kCount);
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(rounded, should);
    // A single source goes from one width to the other: to wide as it is, to plain rounded.
    combine_wide(type, ReduceKind::sum, {to, 1}, 1, {from, 1}, {widths, 1}, kCount);
    convert(plain.data(), type, expected.data(), DataType::float32, kCount);
    EXPECT_EQ(sum, expected);
    combine_wide(type, ReduceKind::sum, {to + 1, 1}, 0, {from + 1, 1}, {widths + 1, 1}, kCount);
    convert(wide.data(), DataType::float32, should.data(), type, kCount);
    EXPECT_EQ(rounded, should);
  }
}

TEST(CombineWide, RefusesTypesWithoutAWiderForm) {
  std::vector<float> x(4);
  void* const to = x.data();
  const Source from{x.data()};
  const unsigned char wide = 1;
  for (const DataType type : {DataType::float32, DataType::float64, DataType::int8}) {
    EXPECT_FALSE(is_widened(type));
    EXPECT_THROW(combine_wide(type, ReduceKind::sum, {&to, 1}, 1, {&from, 1}, {&wide, 1}, 4),
                 Error);
  }
}

}  // namespace
}  // namespace tutti

// The test data of the *_perf programs: every partial result in every order is exact in the type,
// and the expected result is the right one. Checked against long double and the C++ integers, and
// against core/combine in several orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "bench/perf/data.h"
#include "bench/perf/numbers.h"
#include "core/combine.h"
#include "core/compressed.h"

namespace tutti::perf {
namespace {

constexpr std::size_t kPositions = 300;

std::vector<DataType> types(bool floats) {
  std::vector<DataType> result;
  for (int i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (is_float(type) == floats) result.push_back(type);
  }
  return result;
}

std::string describe(const Recipe& recipe) {
  return std::string(name(recipe.type)) + " " +
         (recipe.kind ? std::string(name(*recipe.kind)) : "") + " of " +
         std::to_string(recipe.ranks);
}

// A float's value, from the definition of the formats. No NaNs.
long double value_of(DataType type, std::uint64_t bits) {
  const FloatFormat format = float_format(type);
  const int width = static_cast<int>(size_of(type)) * 8;
  const bool negative = (bits >> (width - 1) & 1) != 0;
  const auto exponent =
      static_cast<int>(bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1));
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  long double magnitude = std::ldexp(static_cast<long double>(mantissa), format.quantum());
  if (exponent == (1 << format.exponent_bits) - 1 && type != DataType::float8_e4m3) {
    magnitude = std::numeric_limits<long double>::infinity();
  } else if (exponent > 0) {
    magnitude =
        std::ldexp(1 + std::ldexp(static_cast<long double>(mantissa), -format.mantissa_bits),
                   exponent - format.bias());
  }
  return negative ? -magnitude : magnitude;
}

// To nearest even, as if the exponent had no upper bound.
long double round_to(DataType type, long double value) {
  if (value == 0) return value;
  const FloatFormat format = float_format(type);
  const int unit = std::max(std::ilogb(value) - format.mantissa_bits, format.quantum());
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

bool is_exact(DataType type, long double value) {
  const long double largest = type == DataType::float8_e4m3 ? 448.0L : value_of(type, [&] {
    const FloatFormat format = float_format(type);
    return (((std::uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits) - 1;
  }());
  return round_to(type, value) == value && std::fabs(value) <= largest;
}

std::vector<std::uint64_t> inputs_at(const Data& data, std::uint64_t position) {
  std::vector<std::uint64_t> inputs;
  for (int rank = 0; rank < data.recipe().ranks; ++rank) {
    std::uint64_t bits = 0;
    data.input(rank, position, 1, &bits);
    inputs.push_back(bits);
  }
  return inputs;
}

std::uint64_t reduction_at(const Data& data, std::uint64_t position) {
  std::uint64_t bits = 0;
  data.reduction(position, 1, &bits);
  return bits;
}

// Reduces in several random orders, each term rounded as Tutti rounds it, and expects every partial
// result to be exact. Returns the result.
long double reduce_exactly(DataType type, bool product, std::vector<long double> terms,
                           std::mt19937& random) {
  long double result = 0;
  for (int order = 0; order < 3; ++order) {
    std::shuffle(terms.begin(), terms.end(), random);
    long double partial = product ? 1 : 0;
    for (const long double term : terms) {
      partial = product ? partial * term : partial + term;
      EXPECT_TRUE(is_exact(type, partial)) << static_cast<double>(partial);
    }
    EXPECT_TRUE(order == 0 || partial == result);
    result = partial;
  }
  return result;
}

// What is summed: the input, times the rank's scalar, or divided by the number of ranks as Tutti
// defines it (in float32, or float64).
long double term_of(const Recipe& recipe, int rank, std::uint64_t bits) {
  const long double value = value_of(recipe.type, bits);
  if (*recipe.kind == ReduceKind::pre_multiplied_sum) return value * (rank % 2 == 0 ? 1 : 2);
  if (*recipe.kind != ReduceKind::avg) return value;
  if (recipe.type == DataType::float64) return static_cast<double>(value) / recipe.ranks;
  return round_to(recipe.type, static_cast<float>(value) / static_cast<float>(recipe.ranks));
}

std::vector<int> rank_counts() {
  std::vector<int> counts(17);
  std::iota(counts.begin(), counts.end(), 1);
  for (const int count : {24, 33, 100, 128, 600, 1024}) counts.push_back(count);
  return counts;
}

TEST(PerfData, FloatsAreExactInEveryOrder) {
  std::mt19937 random(7);
  for (const DataType type : types(true)) {
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::prod, ReduceKind::avg, ReduceKind::pre_multiplied_sum}) {
      for (const int ranks : rank_counts()) {
        const Recipe recipe{type, kind, ranks, 3};
        const Data data(recipe);
        const std::size_t positions = ranks > 17 ? 20 : kPositions;
        for (std::uint64_t position = 0; position < positions; ++position) {
          const std::vector<std::uint64_t> inputs = inputs_at(data, position);
          std::vector<long double> terms;
          for (int rank = 0; rank < ranks; ++rank) {
            const std::uint64_t bits = inputs[static_cast<std::size_t>(rank)];
            ASSERT_TRUE(std::isfinite(value_of(type, bits))) << describe(recipe);
            terms.push_back(term_of(recipe, rank, bits));
          }
          const long double expected =
              reduce_exactly(type, kind == ReduceKind::prod, terms, random);
          const std::uint64_t bits = reduction_at(data, position);
          ASSERT_EQ(value_of(type, bits), expected) << describe(recipe) << " at " << position;
          ASSERT_TRUE(expected != 0 || bits == 0) << "-0 for a sum of zero";
          if (HasFailure()) FAIL() << describe(recipe) << " at " << position;
        }
      }
    }
  }
}

TEST(PerfData, MinAndMaxOfFloats) {
  for (const DataType type : types(true)) {
    for (const ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
      for (const int ranks : {1, 2, 3, 17}) {
        const Data data({type, kind, ranks, 5});
        for (std::uint64_t position = 0; position < kPositions; ++position) {
          long double best = 0;
          bool first = true;
          for (const std::uint64_t bits : inputs_at(data, position)) {
            ASSERT_FALSE(is_nan(type, bits));
            const long double value = value_of(type, bits);
            const bool better = kind == ReduceKind::min ? value < best : value > best;
            if (first || better) best = value;
            first = false;
          }
          ASSERT_EQ(value_of(type, reduction_at(data, position)), best);
        }
      }
    }
  }
}

template <class T>
void check_integers(DataType type) {
  using Unsigned = std::make_unsigned_t<T>;
  for (int k = 0; k < kReduceKinds; ++k) {
    const auto kind = static_cast<ReduceKind>(k);
    for (const int ranks : rank_counts()) {
      const Data data({type, kind, ranks, 9});
      for (std::uint64_t position = 0; position < 40; ++position) {
        const std::vector<std::uint64_t> inputs = inputs_at(data, position);
        std::uint64_t sum = 0, product = 1, scaled = 0;
        T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::min();
        for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
          const auto value = static_cast<T>(inputs[rank]);
          sum += static_cast<Unsigned>(value);
          product *= static_cast<Unsigned>(value);
          scaled += static_cast<Unsigned>(value) * std::uint64_t{rank % 2 == 0 ? 1u : 2u};
          low = std::min(low, value);
          high = std::max(high, value);
        }
        using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
        const auto mean =
            static_cast<T>(static_cast<Wide>(static_cast<T>(sum)) / static_cast<Wide>(ranks));
        const T expected[] = {static_cast<T>(sum),   static_cast<T>(product), high, low, mean,
                              static_cast<T>(scaled)};
        ASSERT_EQ(static_cast<T>(reduction_at(data, position)), expected[k])
            << describe(data.recipe());
      }
    }
  }
}

TEST(PerfData, Integers) {
  check_integers<std::int8_t>(DataType::int8);
  check_integers<std::uint8_t>(DataType::uint8);
  check_integers<std::int32_t>(DataType::int32);
  check_integers<std::uint32_t>(DataType::uint32);
  check_integers<std::int64_t>(DataType::int64);
  check_integers<std::uint64_t>(DataType::uint64);
}

// combine() as an executor may use it: one source after the other, stored in between.
std::vector<std::byte> combine_in_order(const Data& data, const std::vector<int>& order) {
  const Recipe& recipe = data.recipe();
  const std::size_t bytes = kPositions * size_of(recipe.type);
  std::vector<std::byte> result(bytes), input(bytes);
  const bool divides = *recipe.kind == ReduceKind::avg;
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(recipe.ranks);
  for (std::size_t i = 0; i < order.size(); ++i) {
    data.input(order[i], 0, kPositions, input.data());
    Source source{input.data()};
    if (*recipe.kind == ReduceKind::pre_multiplied_sum) {
      source.prescale = Prescale::multiply;
      source.scalar = data.op(order[i]).scalar;
    } else if (divides && is_float(recipe.type)) {
      source.prescale = Prescale::divide;
    }
    options.divide_result = divides && !is_float(recipe.type) && i + 1 == order.size();
    std::vector<Source> sources{source};
    if (i > 0) sources.push_back({result.data()});
    void* destinations[] = {result.data()};
    combine(recipe.type, *recipe.kind, destinations, sources, kPositions, options);
  }
  return result;
}

TEST(PerfData, CombineAgreesInAnyOrder) {
  std::mt19937 random(11);
  for (int t = 0; t < kDataTypes; ++t) {
    for (int k = 0; k < kReduceKinds; ++k) {
      for (const int ranks : {1, 2, 3, 7, 9, 16, 17}) {
        const Data data({static_cast<DataType>(t), static_cast<ReduceKind>(k), ranks, 13});
        std::vector<std::byte> expected(kPositions * size_of(data.recipe().type));
        data.reduction(0, kPositions, expected.data());
        std::vector<int> order(static_cast<std::size_t>(ranks));
        std::iota(order.begin(), order.end(), 0);
        for (int round = 0; round < 3; ++round) {
          ASSERT_EQ(combine_in_order(data, order), expected) << describe(data.recipe());
          std::shuffle(order.begin(), order.end(), random);
        }
      }
    }
  }
}

TEST(PerfData, EveryRankMatters) {
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::prod, ReduceKind::avg, ReduceKind::pre_multiplied_sum}) {
      const int ranks = 17;
      const Data data({type, kind, ranks, 1});
      const std::uint64_t neutral = kind != ReduceKind::prod ? 0
                                    : is_float(type)         ? encode(type, 1)
                                                             : 1;
      for (int rank = 0; rank < ranks; ++rank) {
        std::size_t matters = 0;
        for (std::uint64_t position = 0; position < kPositions; ++position) {
          std::uint64_t bits = 0;
          data.input(rank, position, 1, &bits);
          matters += bits != neutral ? 1 : 0;
          // An even factor would hide what the others' top bits are.
          if (kind == ReduceKind::prod && !is_float(type)) {
            ASSERT_EQ(bits & 1, 1u);
          }
        }
        EXPECT_GT(matters, 2u) << describe(data.recipe()) << " rank " << rank;
      }
    }
  }
}

TEST(PerfData, DiffersByRankPositionAndSeed) {
  const Data data({DataType::uint64, std::nullopt, 4, 1});
  const Data other({DataType::uint64, std::nullopt, 4, 2});
  std::vector<std::uint64_t> all;
  const auto add = [&](auto fill) {
    std::vector<std::uint64_t> block(kPositions);
    fill(block.data());
    all.insert(all.end(), block.begin(), block.end());
  };
  for (int rank = 0; rank < 4; ++rank) {
    add([&](void* out) { data.input(rank, 0, kPositions, out); });
    add([&](void* out) { other.input(rank, 0, kPositions, out); });
  }
  add([&](void* out) { data.filler(0, kPositions, out); });
  add([&](void* out) { other.filler(0, kPositions, out); });
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(PerfData, BlocksAreSlicesOfTheWhole) {
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const Data data({type, ReduceKind::sum, 3, 1});
    std::vector<std::byte> whole(100 * size_of(type)), parts(whole.size() + 1);
    data.input(1, 50, 100, whole.data());
    std::byte* unaligned = parts.data() + 1;
    data.input(1, 50, 37, unaligned);
    data.input(1, 87, 63, unaligned + 37 * size_of(type));
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), unaligned));
  }
}

TEST(PerfNumbers, EncodeRoundTripsEveryShortValue) {
  for (const DataType type :
       {DataType::float8_e4m3, DataType::float8_e5m2, DataType::float16, DataType::bfloat16}) {
    const std::uint64_t end = std::uint64_t{1} << (8 * size_of(type));
    for (std::uint64_t bits = 0; bits < end; ++bits) {
      if (is_nan(type, bits) || !std::isfinite(value_of(type, bits))) continue;
      ASSERT_EQ(encode(type, static_cast<double>(value_of(type, bits))), bits) << name(type);
    }
  }
}

TEST(PerfNumbers, EncodeRoundsToNearestEven) {
  std::mt19937 random(5);
  for (const DataType type :
       {DataType::float8_e4m3, DataType::float8_e5m2, DataType::float16, DataType::bfloat16}) {
    std::uniform_real_distribution<float> small(-2, 2);
    for (int i = 0; i < 20000; ++i) {
      const float value = std::ldexp(small(random), -(i % 24));
      ASSERT_EQ(value_of(type, encode(type, value)), round_to(type, value)) << value;
    }
  }
}

// What travels in 8 bits is exact: the inputs, scaled or not, and their sum.
TEST(PerfData, CompressedMessagesCarryItExactly) {
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32}) {
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::avg, ReduceKind::pre_multiplied_sum}) {
      for (const int ranks : {2, 3, 4, 5, 7, 8, 12, 16}) {
        const Data data({type, kind, ranks, 3, true});
        std::vector<std::uint8_t> values(kPositions * size_of(type)), back(values.size()),
            packed(compressed_bytes(type, kPositions));
        for (int r = -1; r < ranks; ++r) {
          if (r < 0) {
            data.reduction(0, kPositions, values.data());
          } else {
            data.input(r, 0, kPositions, values.data());
          }
          compress(type, values.data(), packed.data(), kPositions);
          decompress(type, packed.data(), back.data(), kPositions);
          EXPECT_EQ(values, back) << describe(data.recipe()) << ", rank " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::perf

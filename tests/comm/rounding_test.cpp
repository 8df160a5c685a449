// How often sums of narrow floats are rounded: as the plans say, and once where the user asks for
// it, bit for bit.
#include "collectives/model/rounding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "comm/communicator.h"
#include "core/float_types.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;
using test::run_thread_ranks;

std::uint32_t roundings(Collective c, const char* algorithm, int ranks) {
  PlanRequest request;
  request.ranks = ranks;
  const Verdict v = verify(generate_plan(*find_algorithm(c, algorithm), request));
  EXPECT_TRUE(v.proved) << v.story;
  return v.roundings;
}

TEST(Roundings, AreAsDeepAsTheSumsOfThePlan) {
  for (const int n : {2, 3, 4, 7, 8, 13, 16}) {
    const auto ranks = static_cast<std::uint32_t>(n);
    const auto log = static_cast<std::uint32_t>(std::bit_width(ranks - 1));
    SCOPED_TRACE(n);
    for (const char* once : {"one_shot", "two_shot", "one_shot_window", "two_shot_window"}) {
      EXPECT_EQ(roundings(Collective::all_reduce, once, n), 1u) << once;
    }
    for (const char* once : {"direct", "direct_window"}) {
      EXPECT_EQ(roundings(Collective::reduce_scatter, once, n), 1u) << once;
      EXPECT_EQ(roundings(Collective::reduce, once, n), 1u) << once;
    }
    EXPECT_EQ(roundings(Collective::reduce, "split_window", n), 1u);
    EXPECT_EQ(roundings(Collective::all_reduce, "ring", n), ranks - 1);
    EXPECT_EQ(roundings(Collective::reduce_scatter, "ring", n), ranks - 1);
    EXPECT_EQ(roundings(Collective::reduce, "chain", n), ranks - 1);
    EXPECT_EQ(roundings(Collective::all_reduce, "recursive_doubling", n), log);
    EXPECT_EQ(roundings(Collective::all_reduce, "recursive_halving", n), log);
    EXPECT_EQ(roundings(Collective::reduce_scatter, "bruck", n), log);
    EXPECT_EQ(roundings(Collective::reduce, "tree", n), log);
  }
  EXPECT_EQ(roundings(Collective::all_gather, "ring", 4), 0u);
  EXPECT_EQ(roundings(Collective::all_reduce, "ring", 1), 0u);
}

// What a rank can see of its own part is enough.
TEST(Roundings, OnceIsWhatTheVerifierFinds) {
  for (const Algorithm& a : algorithms()) {
    if (!is_reduction(a.collective)) continue;
    for (int n = 1; n <= 9; ++n) {
      PlanRequest request;
      request.ranks = n;
      const Verdict v = verify(generate_plan(a, request));
      ASSERT_TRUE(v.proved) << v.story;
      EXPECT_EQ(rounds_once(a, n, {}), v.roundings <= 1)
          << name(a.collective) << " " << a.name << " on " << n << " ranks";
    }
  }
}

/// A narrow float, as its bits.
struct Narrow {
  DataType type;
  int mantissa_bits;
  std::uint32_t (*round)(double);
};
const Narrow kNarrow[] = {
    {DataType::float16, 10, [](double v) -> std::uint32_t { return to_float16(v); }},
    {DataType::bfloat16, 7, [](double v) -> std::uint32_t { return to_bfloat16(v); }},
    {DataType::float8_e4m3, 3, [](double v) -> std::uint32_t { return to_float8_e4m3(v); }},
    {DataType::float8_e5m2, 2, [](double v) -> std::uint32_t { return to_float8_e5m2(v); }},
};

/// Element i of rank r's input: a number of the type; float32 can sum many of them exactly.
double input(const Narrow& narrow, int rank, std::size_t i) {
  std::uint64_t h =
      (i + 1) * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(rank) * 0xd6e8feb86659fd93ULL;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL;
  h ^= h >> 32;
  const std::uint64_t mantissa = (std::uint64_t{1} << narrow.mantissa_bits) +
                                 (h & ((std::uint64_t{1} << narrow.mantissa_bits) - 1));
  const int exponent = static_cast<int>(h >> 40 & 7) - 4 - narrow.mantissa_bits;
  return std::ldexp(static_cast<double>(mantissa), exponent) * ((h >> 50 & 3) == 0 ? -1 : 1);
}

std::vector<std::byte> bytes_of(const Narrow& narrow, const std::vector<double>& values) {
  const std::size_t size = size_of(narrow.type);
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = narrow.round(values[i]);
    for (std::size_t b = 0; b < size; ++b)
      bytes[i * size + b] = static_cast<std::byte>(bits >> 8 * b);
  }
  return bytes;
}

/// All ranks' inputs of `count` elements; the exact sum rounded once.
struct Data {
  Data(const Narrow& narrow, int ranks, std::size_t count) {
    std::vector<double> sums(count);
    for (int r = 0; r < ranks; ++r) {
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i) sums[i] += values[i] = input(narrow, r, i);
      in.push_back(bytes_of(narrow, values));
    }
    sum = bytes_of(narrow, sums);
  }
  std::vector<std::vector<std::byte>> in;
  std::vector<std::byte> sum;
};

/// Bits that `c` sums up otherwise, with every collective that does.
std::size_t wrong_bytes(Communicator& c, const Narrow& narrow, const Data& data) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t size = size_of(narrow.type);
  const std::size_t count = data.sum.size() / size;
  const std::vector<std::byte>& in = data.in[rank];
  std::size_t wrong = 0;
  const auto compare = [&](const std::vector<std::byte>& out, std::size_t at, std::size_t bytes) {
    for (std::size_t b = 0; b < bytes; ++b) wrong += out[b] != data.sum[at + b];
  };
  std::vector<std::byte> out(in.size());
  c.all_reduce(in.data(), out.data(), count, narrow.type);
  compare(out, 0, out.size());
  out = in;
  c.all_reduce(out.data(), out.data(), count, narrow.type);
  compare(out, 0, out.size());
  const int root = c.size() - 1;
  c.reduce(in.data(), out.data(), count, narrow.type, {}, root);
  if (c.rank() == root) compare(out, 0, out.size());
  const std::size_t block = count / ranks;
  c.reduce_scatter(in.data(), out.data(), block, narrow.type);
  compare(out, rank * block * size, block * size);
  std::vector<std::size_t> counts(ranks, block);
  counts.back() += count % ranks;
  c.reduce_scatter_v(in.data(), counts, {}, out.data(), narrow.type);
  compare(out, rank * block * size, counts[rank] * size);
  return wrong;
}

class RoundOnce : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { setenv("TUTTI_WINDOWS", GetParam() ? "1" : "0", 1); }
  void TearDown() override { unsetenv("TUTTI_WINDOWS"); }
};

TEST_P(RoundOnce, GivesTheExactSumRoundedOnce) {
  Options options;
  options.round_once = true;
  for (const int n : {2, 3, 4, 6}) {
    for (const Narrow& narrow : kNarrow) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
        if (count > 1000 && n == 6) continue;  // for time's sake
        SCOPED_TRACE(fmt::format("{} x {} on {} ranks", name(narrow.type), count, n));
        const Data data(narrow, n, count);
        run_thread_ranks(n, options, [&](Communicator& c) {
          EXPECT_EQ(wrong_bytes(c, narrow, data), 0u) << "rank " << c.rank();
        });
      }
    }
  }
}

TEST_P(RoundOnce, MakesADifference) {
  Options options;
  options.algorithm = "ring";
  for (const Narrow& narrow : kNarrow) {
    const Data data(narrow, 4, 1000);
    run_thread_ranks(4, options,
                     [&](Communicator& c) { EXPECT_GT(wrong_bytes(c, narrow, data), 0u); });
  }
}

TEST_P(RoundOnce, IsRankZerosWishAndInheritedByParts) {
  const Narrow& narrow = kNarrow[1];
  const Data data(narrow, 4, 300'000), half(narrow, 3, 300'000);
  const UniqueId id = make_unique_id();
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r] {
      Options options;
      options.round_once = r == 0;
      Communicator c = Communicator::create(id, r, 4, options);
      EXPECT_EQ(wrong_bytes(c, narrow, data), 0u);
      Communicator part = c.split(r < 3 ? 0 : -1, 0);
      if (part) {
        EXPECT_EQ(wrong_bytes(part, narrow, half), 0u);
      }
      if (r < 3) {
        Communicator rest = c.shrink(std::vector<int>{3});
        EXPECT_EQ(wrong_bytes(rest, narrow, half), 0u);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, RoundOnce, testing::Bool(),
                         [](const auto& memory) { return memory.param ? "Windows" : "Links"; });

TEST(RoundOnceConflicts, AreRefusedOnEveryRankAndHarmNothing) {
  Options options;
  options.round_once = true;
  options.algorithm = "ring";
  run_thread_ranks(3, options, [](Communicator& c) {
    std::vector<std::uint16_t> x(8), y(8);
    const Error e = error_of([&] { c.all_reduce(x.data(), y.data(), 8, DataType::bfloat16); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_STREQ(e.what(),
                 "all_reduce of bfloat16: the algorithm ring (TUTTI_ALGORITHM) rounds sums more "
                 "than once on 3 ranks, but they are to be rounded once (Options::round_once, "
                 "TUTTI_ROUND_ONCE)");
    // Where it makes no difference.
    c.all_reduce(x.data(), y.data(), 8, DataType::bfloat16, ReduceKind::max);
    c.all_reduce(x.data(), y.data(), 4, DataType::float32);
    c.all_gather(x.data(), y.data(), 2, DataType::bfloat16);
  });
  run_thread_ranks(2, options, [](Communicator& c) {  // two ranks have one sum to make
    std::vector<std::uint16_t> x(8), y(8);
    c.all_reduce(x.data(), y.data(), 8, DataType::bfloat16);
  });
}

TEST(RoundOnceConflicts, OfTheUsersPlan) {
  Options options;
  options.round_once = true;
  PlanRequest request;
  request.ranks = 3;
  const auto text = [&](const char* algorithm) {
    return to_text(generate_plan(*find_algorithm(Collective::all_reduce, algorithm), request));
  };
  run_thread_ranks(3, options, [&](Communicator& c) {
    std::vector<std::uint16_t> x(8), y(8);
    c.use_plan(text("ring"));
    const Error e = error_of([&] { c.all_reduce(x.data(), y.data(), 8, DataType::float16); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_NE(std::string(e.what()).find("the plan that was given"), std::string::npos) << e.what();
    c.use_plan(text("two_shot"));
    c.all_reduce(x.data(), y.data(), 8, DataType::float16);
  });
}

}  // namespace
}  // namespace tutti

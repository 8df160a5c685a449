// What numbers come out (docs/semantics.md, Numbers): by every algorithm, in both modes, with every
// instruction set, over links and windows, between hosts, and on an emulated GPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "core/float_types.h"
#include "core/memory.h"
#include "tests/core/core_targets.h"
#include "tests/device/device_memory.h"
#include "tests/semantics/float_environment.h"
#include "tests/semantics/values.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::string text(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

void expect_table(int ranks, const Options& options, const ValueCases& cases = {}) {
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    EXPECT_EQ(text(wrong_values(c, cases)), "");
    EXPECT_EQ(text(wrong_copies(c, cases)), "");
  });
}

/// Hosts of two ranks each; 0: one host.
Environment hosts_of(int ranks) {
  if (ranks == 0) return Environment(Variables{});
  return Environment(Variables{{"TUTTI_TEST_RANKS_PER_HOST", std::to_string(ranks)}});
}

// semantics.md: N1, N2, N3, N4, N5, N6, N7, N8, N10, N12, N13, C4
TEST(SemanticsNumbers, AreThoseOfTheTableInAnyMemory) {
  for (const bool apart : {false, true}) {
    const Environment environment(Variables{{"TUTTI_APART", apart ? "1" : "0"}});
    for (const bool window : {false, true}) {
      for (const int ranks : {1, 2, 3, 4}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, window " << window << apart);
        ValueCases cases;
        cases.window = window;
        expect_table(ranks, {}, cases);
      }
    }
  }
}

// semantics.md: N1, N2, N3, N4, N5, N6, N7, N8, P2
TEST(SemanticsNumbers, AreTheSameByEveryAlgorithm) {
  std::set<std::string> names;
  for (const Algorithm& a : algorithms()) {
    if (is_reduction(a.collective) && std::string(a.name).find("compressed") == std::string::npos) {
      names.insert(std::string(a.name));
    }
  }
  EXPECT_GT(names.size(), 8U);
  ValueCases cases;
  cases.blocks = {23};
  for (const std::string& name : names) {
    for (const int per_host : {0, 2}) {
      SCOPED_TRACE(testing::Message() << name << ", ranks of a host: " << per_host);
      const Environment environment = hosts_of(per_host);
      Options options;
      options.algorithm = name;
      run_thread_ranks(4, options,
                       [&](Communicator& c) { EXPECT_EQ(text(wrong_values(c, cases)), ""); });
    }
  }
}

// semantics.md: N1, N2, N3, N4, N5, N7, N8, P1
TEST(SemanticsNumbers, AreThoseOfTheTableBetweenHostsAndInInvariantMode) {
  for (const bool invariant : {false, true}) {
    for (const int per_host : {0, 1, 2}) {
      if (!invariant && per_host == 0) continue;  // above
      SCOPED_TRACE(testing::Message() << per_host << ", invariant " << invariant);
      const Environment environment = hosts_of(per_host);
      Options options;
      options.invariant = invariant;
      for (const int ranks : {2, 3, 4}) expect_table(ranks, options);
    }
  }
}

// semantics.md: P3
TEST(SemanticsNumbers, AreTheSameWithEveryInstructionSet) {
  for (const std::int64_t target : CombineTarget::all()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const CombineTarget only(target);
    expect_table(3, {});
  }
}

class SemanticsOnAGpu : public OnDeviceMemory {};

// semantics.md: P4
TEST_F(SemanticsOnAGpu, NumbersAreThoseOfTheTable) {
  ValueCases cases;
  cases.blocks = {1, 37};
  cases.run = [](Communicator& c, const Call& call) { c.run(call, stream(c.rank())); };
  for (const bool invariant : {false, true}) {
    for (const int n : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << n << " ranks, invariant " << invariant);
      Options options;
      options.invariant = invariant;
      auto all = ranks(n, options);
      in_threads(all, [&](Communicator& c) {
        EXPECT_EQ(text(wrong_values(c, cases)), "");
        EXPECT_EQ(text(wrong_copies(c, cases)), "");
      });
      EXPECT_GT(the_device->launches, 0);
    }
  }
}

// semantics.md: P4
TEST_F(SemanticsOnAGpu, AMessageOfNothingIsNone) {
  auto all = ranks(2);
  for (Communicator& c : all) {  // one after the other: neither waits
    Call call{.collective = Collective::send_recv, .type = DataType::int32, .peer = 1 - c.rank()};
    call.sends = c.rank() == 1;
    c.run(call, stream(c.rank()));
  }
}

// semantics.md: N6
TEST(SemanticsNumbers, DoNotDependOnTheThreadsFloatingPointEnvironment) {
  for (const bool started : {false, true}) {
    ValueCases cases;
    cases.run = [&](Communicator& c, const Call& call) {
      const ThreadFloatEnvironment other(c.rank() + 1);
      started ? c.start(call).wait() : c.run(call);
      EXPECT_TRUE(other.is_there());
    };
    for (const bool invariant : {false, true}) {
      Options options;
      options.invariant = invariant;
      expect_table(3, options, cases);
    }
  }
}

// --- Sums and averages ---------------------------------------------------------------------------

template <class T>
T reduced(Communicator& c, T mine, ReduceKind kind, DataType type = DataTypeOf<T>::value) {
  T out{};
  c.all_reduce(&mine, &out, 1, type, kind);
  return out;
}

// semantics.md: N7, N8
TEST(SemanticsNumbers, OfIntegersWrapAndTheirAveragesAreCutOff) {
  run_thread_ranks(2, [](Communicator& c) {
    const bool first = c.rank() == 0;
    EXPECT_EQ(reduced<std::int32_t>(c, first ? -7 : 0, ReduceKind::avg), -3);
    EXPECT_EQ(reduced<std::int32_t>(c, first ? 7 : 0, ReduceKind::avg), 3);
    EXPECT_EQ(reduced<std::int32_t>(c, INT32_MAX, ReduceKind::sum), -2);
    EXPECT_EQ(reduced<std::int32_t>(c, INT32_MAX, ReduceKind::avg), -1);
    EXPECT_EQ(reduced<std::uint8_t>(c, 200, ReduceKind::avg), 72);
    EXPECT_EQ(reduced<std::int64_t>(c, INT64_MIN, ReduceKind::prod), 0);
  });
  run_thread_ranks(3, [](Communicator& c) {
    EXPECT_EQ(reduced<std::int8_t>(c, 100, ReduceKind::avg), 14);  // 300 wraps to 44
  });
}

// semantics.md: N9
TEST(SemanticsNumbers, OfAFloatAverageAreDividedFirstAndLastInInvariantMode) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  for (const bool invariant : {false, true}) {
    Options options;
    options.invariant = invariant;
    run_thread_ranks(2, options, [&](Communicator& c) {
      EXPECT_EQ(reduced(c, kLargest, ReduceKind::avg), invariant ? kInfinity : kLargest);
      EXPECT_EQ(reduced(c, kSmallest, ReduceKind::avg), invariant ? kSmallest : 0.0F);
      // The sum of 16-bit floats is a float32.
      const std::uint16_t half = 0x7BFF;
      EXPECT_EQ(reduced(c, half, ReduceKind::avg, DataType::float16), half);
    });
  }
}

/// 2048, 1 and 1 as float16: one rounding gives 2050; one after each addition may give 2048.
std::vector<std::uint16_t> summed_halves(Communicator& c) {
  std::vector<std::uint16_t> x(300, to_float16(c.rank() == 0 ? 2048.0 : 1.0));
  c.all_reduce(x.data(), x.data(), x.size(), DataType::float16);
  return x;
}

// semantics.md: N11, O3
TEST(SemanticsNumbers, OfNarrowFloatsAreRoundedOnceWhereThatIsAskedFor) {
  const std::uint16_t once = to_float16(2050);
  for (const bool invariant : {false, true}) {
    Options options;
    (invariant ? options.invariant : options.round_once) = true;
    run_thread_ranks(3, options,
                     [&](Communicator& c) { EXPECT_EQ(summed_halves(c), std::vector(300, once)); });
  }
  // By default it is the algorithm's number of times, and equal inputs may have unequal sums.
  Options options;
  options.algorithm = "ring";
  run_thread_ranks(3, options, [&](Communicator& c) {
    const std::vector<std::uint16_t> x = summed_halves(c);
    EXPECT_EQ(std::set(x.begin(), x.end()), (std::set<std::uint16_t>{to_float16(2048), once}));
  });
  // Two ranks have one addition.
  run_thread_ranks(2, options, [&](Communicator& c) {
    std::vector<std::uint16_t> x(500), expected(500);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = [&](std::size_t r) {
        return std::ldexp(static_cast<double>(1025 + (i * 7 + r * 311) % 1023),
                          static_cast<int>(r));
      };
      x[i] = to_float16(value(static_cast<std::size_t>(c.rank())));
      expected[i] = to_float16(value(0) + value(1));
    }
    c.all_reduce(x.data(), x.data(), x.size(), DataType::float16);
    EXPECT_EQ(x, expected);
  });
}

// semantics.md: N13
TEST(SemanticsNumbers, HaveTheSameBitsOnAllRanks) {
  for (const int ranks : {2, 3, 4}) {
    run_thread_ranks(ranks, [](Communicator& c) {
      constexpr std::size_t kCount = 5000;
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::avg}) {
        std::vector<float> x(kCount), all(kCount * static_cast<std::size_t>(c.size()));
        for (std::size_t i = 0; i < kCount; ++i) {
          x[i] = std::ldexp(1.0F + static_cast<float>((i * 40503 + 977 * (c.rank() + 1)) % 65521),
                            static_cast<int>(i % 40) - 20);
        }
        c.all_reduce(x, kind);
        c.all_gather(x, all);
        for (std::size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(all[i]),
                    std::bit_cast<std::uint32_t>(all[i % kCount]));
        }
      }
    });
  }
}

// --- Compressed ----------------------------------------------------------------------------------

std::vector<float> compressed_sum(Communicator& c, std::vector<float> x) {
  c.run({.collective = Collective::all_reduce,
         .in = x.data(),
         .out = x.data(),
         .count = x.size(),
         .type = DataType::float32,
         .compressed = true});
  return x;
}

// semantics.md: N14
TEST(SemanticsNumbers, ThatAreCompressedLoseInfinitiesAndTheSignOfZero) {
  for (const int per_host : {0, 1}) {
    const Environment environment = hosts_of(per_host);
    for (const int ranks : {2, 3}) {
      run_thread_ranks(ranks, [&](Communicator& c) {
        const bool first = c.rank() == 0;
        const auto x = compressed_sum(c, {-0.0F, first ? kNaN : 1, first ? 1 : kInfinity, 64, 0.0F,
                                          std::numeric_limits<float>::denorm_min()});
        EXPECT_EQ(std::bit_cast<std::uint32_t>(x[0]), 0U);  // +0
        EXPECT_TRUE(std::isnan(x[1]));
        EXPECT_TRUE(std::isnan(x[2]));  // an infinity is a NaN, and its neighbours are well
        EXPECT_EQ(x[3], 64.0F * static_cast<float>(c.size()));
        EXPECT_EQ(x[4], 0.0F);
        EXPECT_EQ(x[5], 0.0F);  // far below its neighbours
        EXPECT_TRUE(std::isnan(compressed_sum(c, {std::numeric_limits<float>::max()})[0]));
      });
    }
  }
  run_thread_ranks(1, [](Communicator& c) {  // nothing travels
    const auto x = compressed_sum(c, {-0.0F, kInfinity, std::numeric_limits<float>::denorm_min()});
    EXPECT_TRUE(std::signbit(x[0]));
    EXPECT_EQ(x[1], kInfinity);
    EXPECT_EQ(x[2], std::numeric_limits<float>::denorm_min());
  });
}

// semantics.md: N14
TEST(SemanticsNumbers, ThatAreCompressedHaveTheSameBitsInAnyEnvironment) {
  std::vector<std::vector<float>> results(3);
  for (std::size_t turn = 0; turn < 3; ++turn) {
    run_thread_ranks(3, [&](Communicator& c) {
      std::vector<float> x(1000);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] =
            std::ldexp(static_cast<float>((i * 2654435761U + 97 * (c.rank() + 1)) % 10007), -140);
      }
      const ThreadFloatEnvironment other(turn == 0 ? 0 : c.rank() + static_cast<int>(turn));
      x = compressed_sum(c, x);
      if (c.rank() == static_cast<int>(turn)) results[turn] = x;
    });
  }
  for (std::size_t i = 0; i < 1000; ++i) {
    for (const auto& r : results) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(r[i]), std::bit_cast<std::uint32_t>(results[0][i]));
    }
  }
}

}  // namespace
}  // namespace tutti::test

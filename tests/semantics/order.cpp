// Who waits for whom, and in which order calls run (docs/semantics.md, Order); and when they give
// the same bits again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// A sum of these depends on its order almost everywhere.
float summand(int rank, std::size_t i) {
  const auto bits = static_cast<std::uint32_t>((i + 1) * 2654435761U + 40503U * (rank + 1));
  return static_cast<float>(bits >> 8) * (i % 3 == 0 ? 1e-3F : 1.0F);
}

template <class Vector>
Vector summands(int rank, std::size_t count) {
  Vector x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = summand(rank, i);
  return x;
}

template <class Vector>
void expect_repeats(Communicator& c) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{3001}, std::size_t{40'000}}) {
    const auto in = summands<Vector>(c.rank(), count);
    Vector first(count), again(count);
    const Call call{.collective = Collective::all_reduce,
                    .in = in.data(),
                    .out = again.data(),
                    .count = count,
                    .type = DataType::float32};
    c.all_reduce(in.data(), first.data(), count, DataType::float32);
    for (int turn = 0; turn < 30; ++turn) {
      again.assign(count, 0);
      if (turn % 3 == 0) c.run(call);
      if (turn % 3 == 1) c.start(call).wait();
      if (turn % 3 == 2) {
        group([&] {
          c.run(call);
          c.barrier();
        });
      }
      ASSERT_EQ(std::memcmp(again.data(), first.data(), count * sizeof(float)), 0)
          << count << " elements, turn " << turn;
    }
    auto in_place = in;
    c.all_reduce(in_place.data(), in_place.data(), count, DataType::float32);
    ASSERT_EQ(std::memcmp(in_place.data(), first.data(), count * sizeof(float)), 0) << count;
  }
}

// semantics.md: O1, O2
TEST(SemanticsOrder, ARepeatedCallHasTheSameBitsHoweverItIsMade) {
  for (const char* apart : {"0", "1"}) {
    const Environment environment(Variables{{"TUTTI_APART", apart}});
    for (const int ranks : {3, 4}) {
      run_thread_ranks(ranks, [](Communicator& c) {
        expect_repeats<std::vector<float>>(c);
        expect_repeats<std::vector<float, Allocator<float>>>(c);
      });
    }
  }
}

// semantics.md: O3
TEST(SemanticsOrder, NothingButInputsChangesTheBitsInInvariantMode) {
  std::vector<float> first;
  for (const char* per_host : {"1", "2", "4"}) {
    const Environment environment(Variables{{"TUTTI_TEST_RANKS_PER_HOST", per_host}});
    Options options;
    options.invariant = true;
    run_thread_ranks(4, options, [&](Communicator& c) {
      for (const std::size_t count : {std::size_t{1000}, std::size_t{30'000}}) {
        auto x = summands<std::vector<float>>(c.rank(), count);
        auto y = summands<std::vector<float, Allocator<float>>>(c.rank(), count);
        c.all_reduce(x);
        c.all_reduce(y);
        EXPECT_EQ(std::memcmp(x.data(), y.data(), 1000 * sizeof(float)), 0);
        if (c.rank() == 0 && first.empty()) first = x;
        c.barrier();
        EXPECT_EQ(std::memcmp(x.data(), first.data(), 1000 * sizeof(float)), 0) << per_host;
      }
      // Equal inputs in all elements: equal sums.
      std::vector<float> equal(10'000, summand(c.rank(), 7));
      c.all_reduce(equal);
      EXPECT_EQ(equal, std::vector<float>(10'000, equal[0]));
    });
  }
}

// --- Who waits for whom --------------------------------------------------------------------------

enum class Waits { all_for_all, root_for_all, all_for_root };

struct Rule {
  Collective collective;
  Waits waits;
};
constexpr Rule kRules[] = {
    {Collective::barrier, Waits::all_for_all},    {Collective::all_reduce, Waits::all_for_all},
    {Collective::all_gather, Waits::all_for_all}, {Collective::reduce_scatter, Waits::all_for_all},
    {Collective::all_to_all, Waits::all_for_all}, {Collective::reduce, Waits::root_for_all},
    {Collective::gather, Waits::root_for_all},    {Collective::broadcast, Waits::all_for_root},
    {Collective::scatter, Waits::all_for_root},
};

/// With each rank in turn as the late one.
void expect_waits(const Options& options) {
  constexpr int kRanks = 3;
  constexpr int kRoot = 1;
  std::array<std::atomic<int>, kRanks> arrived{};
  run_thread_ranks(kRanks, options, [&](Communicator& c) {
    std::vector<float> in(3 * 40'000, 1), out(3 * 40'000);
    int turn = 0;
    for (const Rule& rule : kRules) {
      for (const std::size_t count : {std::size_t{2}, std::size_t{40'000}}) {
        for (int late = 0; late < kRanks; ++late) {
          if (c.rank() == late) std::this_thread::sleep_for(4ms);
          const bool is_barrier = rule.collective == Collective::barrier;
          const Call call{.collective = rule.collective,
                          .in = in.data(),
                          .out = out.data(),
                          .count = is_barrier ? 0 : count,
                          .type = DataType::float32,
                          .root = kRoot};
          ++turn;
          arrived[static_cast<std::size_t>(c.rank())] = turn;
          turn % 2 == 0 ? c.run(call) : c.start(call).wait();
          for (int r = 0; r < kRanks; ++r) {
            if (rule.waits == Waits::root_for_all && c.rank() != kRoot) continue;
            if (rule.waits == Waits::all_for_root && r != kRoot) continue;
            EXPECT_GE(arrived[static_cast<std::size_t>(r)].load(), turn)
                << "rank " << c.rank() << " returns from " << name(rule.collective) << " x "
                << count << " before rank " << r << " has called";
          }
        }
      }
    }
  });
}

// semantics.md: O4, O5
TEST(SemanticsOrder, NoRankHasAResultBeforeThoseThatItNeedsHaveCalled) {
  for (const char* per_host : {"1", "3"}) {
    const Environment environment(Variables{{"TUTTI_TEST_RANKS_PER_HOST", per_host}});
    expect_waits({});
    Options invariant;
    invariant.invariant = true;
    expect_waits(invariant);
  }
}

// semantics.md: O6
TEST(SemanticsOrder, StartedCallsKeepTheOrderOfTheirKind) {
  run_thread_ranks(2, [](Communicator& c) {
    const int peer = 1 - c.rank();
    // Messages of a pair come in order, and a collective overtakes those that wait.
    std::array<std::int32_t, 5> got{};
    std::vector<Future> receives;
    for (std::int32_t& g : got) {
      receives.push_back(c.start({.collective = Collective::send_recv,
                                  .out = &g,
                                  .count = 1,
                                  .type = DataType::int32,
                                  .peer = peer}));
    }
    std::int32_t sum = 1;
    c.all_reduce(&sum, &sum, 1, DataType::int32);
    EXPECT_EQ(sum, 2);
    for (const Future& f : receives) EXPECT_FALSE(f.ready());
    c.barrier();
    for (std::int32_t i = 0; i < 5; ++i) c.send(&i, 1, DataType::int32, peer);
    for (Future& f : receives) f.wait();
    EXPECT_EQ(got, (std::array<std::int32_t, 5>{0, 1, 2, 3, 4}));
    // Each of these needs the result of the one before.
    std::vector<std::int64_t> x{1};
    std::vector<Future> sums;
    for (int i = 0; i < 20; ++i) {
      sums.push_back(c.start({.collective = Collective::all_reduce,
                              .in = x.data(),
                              .out = x.data(),
                              .count = 1,
                              .type = DataType::int64}));
    }
    for (Future& f : sums) f.wait();
    EXPECT_EQ(x[0], std::int64_t{1} << 20);
  });
}

}  // namespace
}  // namespace tutti::test

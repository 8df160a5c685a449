// Invariant bits: the same inputs give the bits of the canonical expression, for every size,
// memory, algorithm, layout and setting; and what is refused in this mode.
//
// By default a part of the matrix runs, more than 2,000 cases; TUTTI_TEST_WHOLE_MATRIX=1 runs all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "tests/comm/invariant_cases.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;
using test::run_thread_ranks;

bool whole() { return std::getenv("TUTTI_TEST_WHOLE_MATRIX") != nullptr; }

std::atomic<std::uint64_t> cases_run{0};

Options invariant() {
  Options options;
  options.invariant = true;
  return options;
}

void expect_canonical(int ranks, const Options& options, const test::InvariantCases& cases) {
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    const test::InvariantTally tally = run_invariant_cases(c, cases);
    EXPECT_EQ(tally.wrong, 0u) << tally.first;
    if (c.rank() == 0) cases_run += tally.cases;
  });
}

test::InvariantCases some(std::vector<std::size_t> counts, bool window) {
  test::InvariantCases cases;
  cases.counts = std::move(counts);
  cases.window = window;
  return cases;
}

/// Where ranks are, as the library sees it.
struct Layout {
  const char* name;
  Variables settings;
};
const Layout kLayouts[] = {
    {"Threads", {}},
    {"ThreadsOverLinks", {{"TUTTI_WINDOWS", "0"}, {"TUTTI_CMA", "0"}}},
    {"LikeProcesses", {{"TUTTI_APART", "1"}}},
    {"SmallSlots", {{"TUTTI_WINDOWS", "0"}, {"TUTTI_SLOT_BYTES", "1K"}, {"TUTTI_SLOTS", "2"}}},
    {"SmallTiles", {{"TUTTI_TILE_BYTES", "64K"}}},
    {"HostsOfOne", {{"TUTTI_TEST_RANKS_PER_HOST", "1"}}},
    {"HostsOfTwo", {{"TUTTI_TEST_RANKS_PER_HOST", "2"}}},
};

class InvariantBits : public testing::TestWithParam<std::size_t> {
 protected:
  /// After the matrix, which is the last to run.
  static void TearDownTestSuite() {
    const auto& tests = *testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() < tests.total_test_count()) return;
    fmt::print("{} cases\n", cases_run.load());
    EXPECT_GT(cases_run.load(), 2000u);
  }

  const Layout& layout() const { return kLayouts[GetParam()]; }
  Environment environment_{layout().settings};
};

TEST_P(InvariantBits, AreTheCanonicalExpressionsOnEveryNumberOfRanks) {
  for (int n = 1; n <= 17; ++n) {
    const bool hosts = layout().settings.contains("TUTTI_TEST_RANKS_PER_HOST");
    if (!whole() && n > (hosts ? 5 : 8) && n != 17) continue;
    if (!whole() && hosts && n > 5) continue;
    SCOPED_TRACE(n);
    for (const bool window : {false, true}) {
      test::InvariantCases cases = some({1, 33, 1013}, window);
      if (!whole()) {
        // Each type with each number of ranks somewhere, not everywhere.
        const auto first = (static_cast<std::size_t>(n) + (window ? 3 : 0)) % cases.types.size();
        cases.types = {cases.types[first], cases.types[(first + 1) % cases.types.size()]};
      }
      expect_canonical(n, invariant(), cases);
    }
  }
}

TEST_P(InvariantBits, AreTheSameForLongMessages) {
  for (const int n : {2, 4, 7}) {
    if (n == 7 && !whole()) continue;
    for (const bool window : {false, true}) {
      test::InvariantCases cases = some({70'001, 300'007}, window);
      cases.types = {DataType::bfloat16, DataType::float32};
      if (whole()) cases = some({70'001, 1'000'003, std::size_t{4} << 20}, window);
      expect_canonical(n, invariant(), cases);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, InvariantBits,
                         testing::Range(std::size_t{0}, std::size(kLayouts)),
                         [](const auto& test) { return kLayouts[test.param].name; });

TEST(InvariantAlgorithms, AllGiveTheSameBits) {
  for (const Algorithm& a : algorithms()) {
    if (!a.invariant) continue;
    SCOPED_TRACE(a.name);
    Options options = invariant();
    options.algorithm = a.name;
    for (const int n : {3, 5, 8}) {
      test::InvariantCases cases = some({5, 4099}, true);
      if (!whole()) cases.types = {DataType::float16, DataType::float64};
      // Only what this algorithm does; the others are chosen.
      expect_canonical(n, options, cases);
    }
  }
}

/// Hosts of so many ranks, whose sums travel where they are subtrees.
class InvariantHosts : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(InvariantHosts, GiveTheSameBitsByEveryHierarchicalAlgorithm) {
  const auto& [per_host, slot_bytes] = GetParam();
  const Environment environment(
      {{"TUTTI_TEST_RANKS_PER_HOST", per_host}, {"TUTTI_SLOT_BYTES", slot_bytes}});
  for (const char* const name : {"hierarchical_direct", "hierarchical_pipelined"}) {
    SCOPED_TRACE(name);
    Options options = invariant();
    options.algorithm = name;
    for (const int n : {3, 4, 5, 8}) {
      if (!whole() && n == 8) continue;
      SCOPED_TRACE(n);
      test::InvariantCases cases = some({1, 33, 20'011}, true);
      // Each type with each number of ranks and size of hosts somewhere, not everywhere.
      if (!whole()) {
        const auto first = static_cast<std::size_t>(n + per_host[0] + name[13]) % 3;
        cases.types = {cases.types[first], cases.types[first + 3]};
      }
      expect_canonical(n, options, cases);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, InvariantHosts,
                         testing::Combine(testing::Values("1", "2", "3", "4"),
                                          testing::Values("64K", "1K")));

TEST(InvariantAlgorithms, OthersAreRefusedWhereTheOrderMatters) {
  Options options = invariant();
  options.algorithm = "ring";
  run_thread_ranks(3, options, [](Communicator& c) {
    std::vector<float> x(8), y(8);
    const Error e = error_of([&] { c.all_reduce(x.data(), y.data(), 8, DataType::float32); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_STREQ(e.what(),
                 "all_reduce of float32: the bits of the algorithm ring (TUTTI_ALGORITHM) are its "
                 "own, but they are to be invariant (Options::invariant, TUTTI_INVARIANT); `tutti "
                 "plan list` says whose are");
    // Where it makes no difference.
    c.all_reduce(x.data(), y.data(), 8, DataType::int32);
    c.all_reduce(x.data(), y.data(), 8, DataType::float32, ReduceKind::max);
    c.all_gather(x.data(), y.data(), 2, DataType::float32);
  });
}

TEST(InvariantPlans, OfTheUserAreRefusedWithBothExpressions) {
  PlanRequest request;
  request.ranks = 3;
  const auto text = [&](const char* algorithm) {
    return to_text(generate_plan(*find_algorithm(Collective::all_reduce, algorithm), request));
  };
  run_thread_ranks(3, invariant(), [&](Communicator& c) {
    const Error e = error_of([&] { c.use_plan(text("ring")); });
    EXPECT_EQ(e.code(), ErrorCode::unproven_plan);
    const std::string why = e.what();
    EXPECT_NE(why.find("it is (in[0]@1 + in[0]@2) + in[0]@0, but the canonical expression is "
                       "(in[0]@0 + in[0]@1) + in[0]@2"),
              std::string::npos)
        << why;
    c.use_plan(text("two_shot"));
    test::InvariantCases cases = some({9, 1013}, false);
    cases.types = {DataType::bfloat16, DataType::float32};
    const test::InvariantTally tally = run_invariant_cases(c, cases);
    EXPECT_EQ(tally.wrong, 0u) << tally.first;
  });
}

TEST(InvariantPlans, OfTheUserThatAreWideServeAllTypes) {
  PlanRequest request;
  request.ranks = 4;
  request.in_order = true;
  const std::string text = to_text(
      generate_plan(*find_algorithm(Collective::all_reduce, "hierarchical_direct"), request));
  run_thread_ranks(4, invariant(), [&](Communicator& c) {
    c.use_plan(text);
    const test::InvariantTally tally = run_invariant_cases(c, some({9, 1013}, true));
    EXPECT_EQ(tally.wrong, 0u) << tally.first;
  });
}

TEST(InvariantPlans, OfTheUserThatStorePartialSumsAreForTypesThatThisDoesNotRound) {
  PlanRequest request;
  request.ranks = 4;
  request.in_order = true;
  Plan plan =
      generate_plan(*find_algorithm(Collective::all_reduce, "hierarchical_direct"), request);
  plan.header.format = Format::plain;
  for (RankPlan& part : plan.ranks) part.header.format = Format::plain;
  const std::string text = to_text(plan);
  run_thread_ranks(4, invariant(), [&](Communicator& c) {
    c.use_plan(text);
    test::InvariantCases cases = some({9, 1013}, true);
    cases.types = {DataType::float32, DataType::float64};
    const test::InvariantTally tally = run_invariant_cases(c, cases);
    EXPECT_EQ(tally.wrong, 0u) << tally.first;
    std::vector<std::uint16_t> x(8);
    const Error e = error_of([&] { c.all_reduce(x.data(), x.data(), 8, DataType::bfloat16); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_STREQ(
        e.what(),
        "all_reduce of bfloat16: the bits of the plan \"hierarchical_direct\" that was "
        "given for it are its own, but they are to be invariant (Options::invariant, "
        "TUTTI_INVARIANT); it rounds partial sums of this type: take a wide plan, as "
        "hierarchical_direct has with --invariant, or one that sums all inputs in one step, as "
        "two_shot does");
  });
}

TEST(InvariantMode, IsInheritedByParts) {
  run_thread_ranks(5, invariant(), [](Communicator& c) {
    Communicator part = c.split(c.rank() == 0 ? -1 : 0, -c.rank());
    if (!part) return;
    const test::InvariantTally tally = run_invariant_cases(part, some({1013}, false));
    EXPECT_EQ(tally.wrong, 0u) << tally.first;
  });
}

TEST(InvariantMode, IsInheritedByWhatIsReconfigured) {
  std::vector<Communicator> comms;
  std::vector<std::string> handles;
  for (int r = 0; r < 4; ++r) {
    comms.push_back(Communicator::alone(invariant()));
    handles.push_back(comms.back().handle());
  }
  std::vector<std::jthread> ranks;
  for (Communicator& c : comms) {
    ranks.emplace_back([&] {
      c = c.reconfigure(handles, 1, Options());  // which do not ask for it: the one before does
      const test::InvariantTally tally = run_invariant_cases(c, some({1013}, false));
      EXPECT_EQ(tally.wrong, 0u) << tally.first;
    });
  }
}

TEST(InvariantMode, ThatRanksDisagreeAboutIsAMismatchOnAllOfThem) {
  const UniqueId id = make_unique_id();
  std::mutex mutex;
  std::vector<std::string> errors;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.emplace_back([&, r] {
        Options options;
        options.invariant = r != 1;
        const Error e = error_of([&] { Communicator::create(id, r, 3, options); });
        EXPECT_EQ(e.code(), ErrorCode::mismatch);
        const std::lock_guard lock(mutex);
        errors.emplace_back(e.what());
      });
    }
  }
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("rank 0 asks for invariant bits and rank 1 does not: set TUTTI_INVARIANT"),
              std::string::npos)
        << e;
  }
}

/// The inner ranks' sums in another order are other sums: so the tests above can fail.
TEST(InvariantMode, MakesADifference) {
  Options options;
  options.algorithm = "ring";
  test::InvariantCases cases = some({1013}, false);
  cases.types = {DataType::float32, DataType::bfloat16};
  run_thread_ranks(4, options,
                   [&](Communicator& c) { EXPECT_GT(run_invariant_cases(c, cases).wrong, 0u); });
}

}  // namespace
}  // namespace tutti

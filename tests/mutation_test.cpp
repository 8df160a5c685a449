// The verifier against mutants: every plan that ships, spoilt in one place. A mutant is to be
// refuted; one that is proved must be as good as the original, and shows it in random runs of an
// interpreter that shares no code with the verifier (plan_interpreter.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text.h"
#include "collectives/verify.h"
#include "core/error.h"
#include "tests/plan_interpreter.h"
#include "tests/plan_mutations.h"

namespace tutti::testing {
namespace {

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};

struct Original {
  Plan plan;
  std::string name;
};

/// Every algorithm's plan for `ranks` ranks, on one lane and on two.
const std::vector<Original>& originals(int ranks) {
  static std::map<int, std::vector<Original>> all;
  const auto [found, is_new] = all.try_emplace(ranks);
  std::vector<Original>& result = found->second;
  if (!is_new) return result;
  for (const Algorithm& algorithm : algorithms()) {
    for (std::uint32_t lanes = 1; lanes <= (algorithm.lanes && ranks < 5 ? 2U : 1U); ++lanes) {
      PlanRequest request;
      request.collective = algorithm.collective;
      request.ranks = ranks;
      request.root = is_rooted(algorithm.collective) ? ranks - 1 : 0;
      request.lanes = lanes;
      try {
        result.push_back({generate_plan(algorithm, request),
                          fmt::format("{} {} ranks {} lanes {}", name(algorithm.collective),
                                      algorithm.name, ranks, lanes)});
      } catch (const Error&) {
        // Not every algorithm serves every number of ranks.
      }
    }
  }
  return result;
}

std::vector<bool> modes(const Plan& plan) {
  if (has_in_place(plan.header.collective)) return {false, true};
  return {false};
}

std::string first_complaint(const Plan& plan, bool in_place, std::uint64_t runs) {
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    const std::string complaint = interpret(plan, in_place, seed);
    if (!complaint.empty()) return fmt::format("run {}: {}", seed, complaint);
  }
  return {};
}

TEST(Mutation, OriginalsAreProvedAndRunWell) {
  for (const int ranks : kRankCounts) {
    for (const Original& original : originals(ranks)) {
      for (const bool in_place : modes(original.plan)) {
        const Verdict v = verify(original.plan, {.in_place = in_place});
        EXPECT_TRUE(v.proved) << original.name << (in_place ? " in place: " : ": ") << v.story;
        EXPECT_EQ(first_complaint(original.plan, in_place, 20), "")
            << original.name << (in_place ? " in place" : "");
      }
    }
  }
}

std::vector<Spot> spots(const Plan& plan, Mutation::Needs needs) {
  if (needs == Mutation::Needs::plan) return {Spot{}};
  std::vector<Spot> result;
  for (const RankPlan& part : plan.ranks) {
    for (std::uint32_t l = 0; l < part.lanes.size(); ++l) {
      for (std::size_t i = 0; i < part.lanes[l].size(); ++i) {
        const Step& s = part.lanes[l][i];
        const std::size_t operands =
            needs == Mutation::Needs::step ? 1 : std::size_t{s.destinations} + s.sources;
        for (std::size_t o = 0; o < operands; ++o) result.push_back({part.rank, l, i, o});
      }
    }
  }
  return result;
}

struct Tally {
  int mutants = 0;
  int refuted = 0;
  int equivalent = 0;  // proved, and no run complained
  int sampled = 0;     // of the refuted: run all the same
  int complained = 0;  // of the sampled: some run went wrong, too
};

class MutationTest : public ::testing::TestWithParam<Mutation> {
 protected:
  void judge(const Original& original, const Plan& mutant, const Spot& spot, bool in_place);

  Tally tally_;
};

void MutationTest::judge(const Original& original, const Plan& mutant, const Spot& spot,
                         bool in_place) {
  constexpr std::uint64_t kRuns = 10;
  constexpr int kSampled = 20;  // one of so many
  ++tally_.mutants;
  if (!verify(mutant, {.in_place = in_place}).proved) {
    if (tally_.refuted++ % kSampled != 0) return;
    ++tally_.sampled;
    if (!first_complaint(mutant, in_place, kRuns).empty()) ++tally_.complained;
    return;
  }
  const std::string complaint = first_complaint(mutant, in_place, kRuns);
  if (complaint.empty()) ++tally_.equivalent;
  EXPECT_EQ(complaint, "") << "the verifier proves a mutant of " << original.name
                           << (in_place ? " in place" : "") << ": " << GetParam().name << ", rank "
                           << spot.rank << " lane " << spot.lane << " step " << spot.step
                           << " operand " << spot.operand << "\n"
                           << to_text(mutant);
}

TEST_P(MutationTest, IsRefutedOrHarmless) {
  constexpr std::size_t kMostSpots = 30;  // of a plan; where there are more, a random choice
  const Mutation& mutation = GetParam();
  std::mt19937 random(7);
  for (const int ranks : kRankCounts) {
    for (const Original& original : originals(ranks)) {
      std::vector<Spot> at = spots(original.plan, mutation.needs);
      std::shuffle(at.begin(), at.end(), random);
      if (at.size() > kMostSpots) at.resize(kMostSpots);
      for (const Spot& spot : at) {
        for (const int variant : {0, 1}) {
          Plan mutant = original.plan;
          if (!mutation.apply(mutant, spot, variant)) continue;
          for (const bool in_place : modes(original.plan)) {
            judge(original, mutant, spot, in_place);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
  fmt::print("{:30} {:6} mutants  {:6} refuted  {:5} equivalent  (runs go wrong in {} of {})\n",
             mutation.name, tally_.mutants, tally_.refuted, tally_.equivalent, tally_.complained,
             tally_.sampled);
  EXPECT_GT(tally_.refuted, 0);
  if (mutation.is_always_wrong) {
    EXPECT_EQ(tally_.equivalent, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MutationTest,
                         ::testing::ValuesIn(mutations().begin(), mutations().end()),
                         [](const auto& test) {
                           std::string name(test.param.name);
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tutti::testing

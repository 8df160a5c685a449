// The proof that a plan's bits are invariant (VerifyOptions::invariant): which algorithms have it,
// for which numbers of ranks, and what it refuses.
//
// TUTTI_TEST_MANY_RANKS=1 proves more than time allows by default.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/model/domains.h"
#include "tests/collectives/verify_plans.h"

namespace tutti {
namespace {

std::vector<const Algorithm*> reductions() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& a : algorithms()) {
    if (is_reduction(a.collective)) all.push_back(&a);
  }
  return all;
}

std::string what(const Algorithm& a, int ranks) {
  return fmt::format("{} {} on {} ranks", name(a.collective), a.name, ranks);
}

PlanRequest request_for(const Algorithm& a, int ranks, int root = 0) {
  PlanRequest request;
  request.collective = a.collective;
  request.ranks = ranks;
  request.root = root;
  request.scales = false;
  request.in_order = true;
  return request;
}

Verdict prove(const Algorithm& a, int ranks, int root, bool in_place) {
  return verify(plan_parts(a, request_for(a, ranks, root)),
                {.in_place = in_place, .invariant = Invariance::all});
}

TEST(Invariant, AlgorithmsThatSaySoAreProvedForEveryNumberOfRanks) {
  int proved = 0;
  for (const Algorithm* const a : reductions()) {
    if (!a->invariant) continue;
    for (int n = 1; n <= 17; ++n) {
      for (const int root : {0, n - 1}) {
        if (root > 0 && !is_rooted(a->collective)) continue;
        for (const bool in_place : {false, true}) {
          const Verdict v = prove(*a, n, root, in_place);
          ASSERT_TRUE(v.proved) << what(*a, n) << ": " << v.story;
          ++proved;
        }
      }
    }
  }
  EXPECT_GT(proved, 16 * 2 * 17 - 1);
}

TEST(Invariant, NoOtherAlgorithmIsProvedForEightRanks) {
  for (const Algorithm* const a : reductions()) {
    if (a->invariant) continue;
    const Verdict v = verify(plan_parts(*a, request_for(*a, 8)), {.invariant = Invariance::all});
    EXPECT_FALSE(v.proved) << what(*a, 8);
    EXPECT_NE(v.story.find("has bits that depend on the plan: it is "), std::string::npos)
        << v.story;
  }
}

TEST(Invariant, EveryCollectiveThatReducesHasOneOverLinksAndOneThroughWindows) {
  for (const Collective c : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                             Collective::reduce_scatter_v}) {
    for (const bool windows : {false, true}) {
      EXPECT_TRUE(std::ranges::any_of(algorithms(),
                                      [&](const Algorithm& a) {
                                        return a.collective == c && a.invariant &&
                                               a.windows == windows;
                                      }))
          << name(c) << (windows ? " through windows" : " over links");
    }
  }
}

class ManyRanks : public testing::TestWithParam<int> {};

TEST_P(ManyRanks, AreProved) {
  const int n = GetParam();
  const bool all = std::getenv("TUTTI_TEST_MANY_RANKS") != nullptr;
  for (const Algorithm* const a : reductions()) {
    if (!a->invariant) continue;
    // Of 1,024 ranks, what runs long messages: a proof takes a second or two.
    if (n == 1024 && !all && a->name != "two_shot" && a->name != "direct") continue;
    for (const bool in_place : {false, true}) {
      if (in_place && n == 1024 && !all) continue;
      const Verdict v = prove(*a, n, n / 3, in_place);
      ASSERT_TRUE(v.proved) << what(*a, n) << ": " << v.story;
      EXPECT_EQ(v.roundings, 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Invariant, ManyRanks, testing::Values(64, 256, 1024));

/// `text` is refused, with both expressions.
void expect_variant(const std::string& text, const std::string& is, const std::string& should) {
  const Plan plan = parse(text);
  EXPECT_TRUE(verify(plan, {.scales = false}).proved) << verify(plan, {.scales = false}).story;
  const Verdict v = verify(plan, {.invariant = Invariance::all});
  EXPECT_FALSE(v.proved);
  EXPECT_NE(v.story.find("it is " + is + ", but the canonical expression is " + should),
            std::string::npos)
      << v.story;
}

const std::string kOneShot3 = R"(all_reduce by_hand  ranks 3  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    to(1), to(2) <- in[0]
    out[0] <= in[0] + from(1) + from(2)
rank 1
  lane 0
    to(2), to(0) <- in[0]
    out[0] <= from(0) + in[0] + from(2)
rank 2
  lane 0
    to(0), to(1) <- in[0]
    out[0] <= from(0) + from(1) + in[0]
)";

TEST(InvariantMutants, OfTwoSwappedSourcesAreRefused) {
  EXPECT_TRUE(verify(parse(kOneShot3), {.invariant = Invariance::all}).proved);
  std::string swapped = with(kOneShot3, "in[0] + from(1) + from(2)", "in[0] + from(2) + from(1)");
  swapped = with(swapped, "from(0) + in[0] + from(2)", "from(0) + from(2) + in[0]");
  swapped = with(swapped, "from(0) + from(1) + in[0]", "from(0) + in[0] + from(1)");
  expect_variant(swapped, "round((in[0]@0 + in[0]@2) + in[0]@1)",
                 "round((in[0]@0 + in[0]@1) + in[0]@2)");
}

TEST(InvariantMutants, ThatRoundInBetweenAreRefusedForNarrowTypes) {
  const std::string plan = R"(reduce by_hand  ranks 3  root 0  pieces 1  slots 1  lanes 1
rank 0  tmp 1
  lane 0
    tmp[0] <- in[0] + from(1) as in[0]
    out[0] <= tmp[0] + from(2)
rank 1
  lane 0
    to(0) <- in[0]
rank 2
  lane 0
    to(0) <- in[0]
)";
  expect_variant(plan, "round(round(in[0]@0 + in[0]@1) + in[0]@2)",
                 "round((in[0]@0 + in[0]@1) + in[0]@2)");
  // To store a partial sum of wide types rounds nothing; but the order counts.
  EXPECT_TRUE(verify(parse(plan), {.invariant = Invariance::float32_up}).proved);
  const Verdict v = verify(parse(with(plan, "tmp[0] + from(2)", "from(2) + tmp[0]")),
                           {.invariant = Invariance::float32_up});
  EXPECT_FALSE(v.proved);
  EXPECT_NE(v.story.find("it is in[0]@2 + (in[0]@0 + in[0]@1), but the canonical expression is "
                         "(in[0]@0 + in[0]@1) + in[0]@2"),
            std::string::npos)
      << v.story;
}

TEST(InvariantMutants, OfEveryInvariantPlanAreRefused) {
  // Two neighbouring sources of every step that sums, in each rank's part.
  int mutants = 0;
  for (const Algorithm* const a : reductions()) {
    if (!a->invariant) continue;
    const Plan plan = generate_plan(*a, request_for(*a, 5));
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (const auto& lane : plan.ranks[rank].lanes) {
        for (const Step& step : lane) {
          if (step.sources < 2 || step.count == 0) continue;
          for (std::uint32_t s = 0; s + 1 < step.sources; ++s) {
            Plan mutant = plan;
            Operand* const sources =
                mutant.ranks[rank].operands.data() + step.first_operand + step.destinations;
            std::swap(sources[s], sources[s + 1]);
            EXPECT_FALSE(verify(mutant, {.invariant = Invariance::all}).proved)
                << what(*a, 5) << ", sources " << s << " and " << s + 1 << " of rank " << rank;
            ++mutants;
          }
        }
      }
    }
  }
  EXPECT_GT(mutants, 150);
}

TEST(Invariant, NumbersThatAreNotTheRanksOwnAreNoCanonicalOrder) {
  const Domains in_turn(std::vector{0, 1, 0, 1});
  const Algorithm& a = *find_algorithm(Collective::all_reduce, "two_shot");
  PlanRequest request;
  request.ranks = 4;
  const auto parts = [&](const Domains& layout) {
    return PlanParts{a.generate(request, 0).header,
                     [&a, request, layout](int r) { return generate(a, request, r, layout); }};
  };
  EXPECT_FALSE(verify(parts(in_turn), {.invariant = Invariance::all}).proved);
  EXPECT_TRUE(verify(parts(Domains()), {.invariant = Invariance::all}).proved);
}

}  // namespace
}  // namespace tutti

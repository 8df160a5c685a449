// Every algorithm in the table, for many numbers of ranks, roots, lanes and groups: the verifier
// proves its plan, in and out of place, and the plan moves as much as the textbook says.
#include "collectives/algorithms/generators.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/algorithms/hierarchical.h"
#include "collectives/algorithms/textbook.h"
#include "collectives/model/domains.h"
#include "collectives/verify.h"
#include "core/error.h"

namespace tutti {
namespace {

std::string text_of(const Algorithm& a, const PlanRequest& r) {
  return fmt::format("{} {} ranks {} root {} lanes {} group {}", name(a.collective), a.name,
                     r.ranks, r.root, r.lanes, r.group);
}

using Groups = Algorithm::Groups;
bool is_hierarchical(const Algorithm& a) { return a.groups != Groups::none; }

std::uint32_t widest_message(const Plan& plan) {
  std::uint32_t widest = 1;
  for (const RankPlan& part : plan.ranks) {
    for (const auto& lane : part.lanes) {
      for (const Step& step : lane) {
        for (const auto side : {part.destinations(step), part.sources(step)}) {
          for (const Operand& o : side) {
            if (o.is_link()) widest = std::max(widest, step.count);
          }
        }
      }
    }
  }
  return widest;
}

/// Whether some rank addresses memory of a rank in another group.
bool crosses(const Plan& plan, const Domains& groups) {
  for (const RankPlan& part : plan.ranks) {
    for (const Operand& o : part.operands) {
      if (o.is_remote() && !groups.near(part.rank, o.rank)) return true;
    }
  }
  return false;
}

using Textbook = std::function<Traffic(int rank)>;

void expect_proved(const Plan& plan, bool in_place, const Textbook& textbook, bool scales = true) {
  SCOPED_TRACE(in_place ? "in place" : "out of place");
  const Verdict verdict = verify(plan, {.in_place = in_place, .scales = scales});
  ASSERT_TRUE(verdict.proved) << verdict.story;
  for (int rank = 0; rank < plan.header.ranks; ++rank) {
    const Traffic moved = verdict.traffic[static_cast<std::size_t>(rank)];
    const Traffic expected = textbook(rank);
    ASSERT_EQ(moved.sent, expected.sent) << "sent by rank " << rank;
    ASSERT_EQ(moved.received, expected.received) << "received by rank " << rank;
  }
}

/// The requests that `a` is tried with; fewer for many ranks.
std::vector<PlanRequest> requests(const Algorithm& a, int ranks) {
  std::vector<int> roots = {0};
  if (is_rooted(a.collective) && ranks > 1) roots.push_back(ranks - 1);
  if (is_rooted(a.collective) && ranks > 2 && ranks <= 33) roots.push_back(ranks / 2);
  std::vector<int> groups = {0};
  if (is_hierarchical(a) && ranks <= 128) {
    for (const int g : {1, 2, 3, 4, 8, ranks}) {
      const bool fits = g <= ranks && (ranks % g == 0 || a.groups != Groups::equal);
      if (fits && std::find(groups.begin(), groups.end(), g) == groups.end()) groups.push_back(g);
    }
  }
  const std::uint32_t most_lanes = !a.lanes || ranks > 128 ? 1 : ranks <= 33 ? 3 : 2;
  std::vector<PlanRequest> all;
  for (const int root : roots) {
    for (std::uint32_t lanes = 1; lanes <= most_lanes; ++lanes) {
      for (const int group : groups) all.push_back({a.collective, ranks, root, lanes, group});
    }
  }
  return all;
}

class Generators : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {};

TEST_P(Generators, AreProved) {
  const Algorithm& a = algorithms()[std::get<0>(GetParam())];
  const int ranks = std::get<1>(GetParam());
  for (const PlanRequest& request : requests(a, ranks)) {
    SCOPED_TRACE(text_of(a, request));
    const Plan plan = generate_plan(a, request);
    EXPECT_EQ(plan.header.collective, a.collective);
    EXPECT_EQ(plan.header.algorithm, a.name);
    EXPECT_GE(plan.header.widest, widest_message(plan));
    EXPECT_LE(plan.header.widest, 2 * widest_message(plan));  // Bruck may have to cut them all
    const auto textbook = [&](int rank) { return a.textbook(request, rank); };
    for (const bool in_place : {false, true}) {
      if (in_place && !has_in_place(a.collective)) continue;
      if (!in_place && ranks > 128 && has_in_place(a.collective)) continue;  // for time's sake
      expect_proved(plan, in_place, textbook);
      if (HasFatalFailure()) return;
      if (!is_reduction(a.collective)) continue;
      PlanRequest unscaled = request;
      unscaled.scales = false;
      expect_proved(generate_plan(a, unscaled), in_place, textbook, false);
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<std::size_t> indices(bool with_windows) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < algorithms().size(); ++i) {
    if (with_windows || !algorithms()[i].windows) all.push_back(i);
  }
  return all;
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<std::size_t, int>>& info) {
  const Algorithm& a = algorithms()[std::get<0>(info.param)];
  return fmt::format("{}_{}_{}", name(a.collective), a.name, std::get<1>(info.param));
}

std::vector<int> first_numbers(int n) {
  std::vector<int> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 1);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Few, Generators,
                         ::testing::Combine(::testing::ValuesIn(indices(true)),
                                            ::testing::ValuesIn(first_numbers(17))),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Some, Generators,
                         ::testing::Combine(::testing::ValuesIn(indices(true)),
                                            ::testing::Values(24, 32, 33, 64)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Hundred, Generators,
                         ::testing::Combine(::testing::ValuesIn(indices(true)),
                                            ::testing::Values(100, 128)),
                         test_name);
// A thousand ranks do not share one memory.
INSTANTIATE_TEST_SUITE_P(Many, Generators,
                         ::testing::Combine(::testing::ValuesIn(indices(false)),
                                            ::testing::Values(1000)),
                         test_name);

TEST(Table, IsOrderedAndUnambiguous) {
  const auto all = algorithms();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(find_algorithm(all[i].collective, all[i].name), &all[i]);
    EXPECT_FALSE(all[i].summary.empty());
    EXPECT_LE(all[i > 0 ? i - 1 : 0].collective, all[i].collective);
  }
  for (int c = 0; c < kCollectives; ++c) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [c](const Algorithm& a) {
      return a.collective == static_cast<Collective>(c) && !a.windows;
    })) << name(static_cast<Collective>(c));
  }
  EXPECT_EQ(find_algorithm(Collective::barrier, "ring"), nullptr);
}

TEST(Table, SaysWhoUsesWindows) {
  for (const Algorithm& a : algorithms()) {
    const Plan plan = generate_plan(a, {a.collective, 6});
    bool remote = false;
    bool link_data = false;
    for (const RankPlan& part : plan.ranks) {
      for (const Operand& o : part.operands) remote |= o.is_remote();
      for (const auto& lane : part.lanes) {
        for (const Step& step : lane) {
          for (const auto side : {part.destinations(step), part.sources(step)}) {
            link_data |=
                step.count > 0 &&
                std::any_of(side.begin(), side.end(), [](const Operand& o) { return o.is_link(); });
          }
        }
      }
    }
    EXPECT_EQ(a.windows, remote) << a.name;
    EXPECT_TRUE(a.windows || link_data || a.collective == Collective::barrier) << a.name;
    // Where links carry data too, those across groups do, and windows are for neighbours.
    const Domains groups = Domains::even(6, 3);
    EXPECT_EQ(!remote || link_data, !crosses(plan, groups)) << a.name;
  }
}

// More slots than a plan needs are memory that nobody uses.
TEST(Table, DeclaresAsFewSlotsAsCanBe) {
  for (const Algorithm& a : algorithms()) {
    Plan plan = generate_plan(a, {a.collective, 6});
    if (plan.header.slots == 1) continue;
    --plan.header.slots;
    for (RankPlan& part : plan.ranks) --part.header.slots;
    EXPECT_FALSE(verify(plan).proved) << name(a.collective) << " " << a.name;
  }
}

TEST(Table, LanesAreSharedOnlyWhereItSaysSo) {
  for (const Algorithm& a : algorithms()) {
    const std::uint32_t one = generate_plan(a, {a.collective, 4, 0, 1}).header.lanes;
    const std::uint32_t three = generate_plan(a, {a.collective, 4, 0, 3}).header.lanes;
    EXPECT_EQ(three, a.lanes ? 3 * one : one) << name(a.collective) << " " << a.name;
  }
}

// ceil(log2 n) rounds, each with one message, or with one more where a run of blocks wraps around
// (and in one round of reduce-scatter, where the summed blocks end).
TEST(Bruck, HasLogarithmicallyManySteps) {
  for (const int ranks : {5, 8, 100, 1000}) {
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
    for (const Collective c : {Collective::all_gather, Collective::reduce_scatter}) {
      const Plan plan = generate_plan(*find_algorithm(c, "bruck"), {c, ranks});
      for (const RankPlan& part : plan.ranks) EXPECT_LE(part.lanes[0].size(), 4 * rounds + 2);
    }
  }
}

using algorithm::Family;
namespace textbook = algorithm::textbook;

constexpr Family kRings = {
    {algorithm::ring_all_reduce, textbook::exchange_twice, textbook::around_twice},
    {algorithm::ring_all_gather, textbook::exchange, textbook::around},
    {algorithm::ring_reduce_scatter, textbook::exchange, textbook::around},
    {algorithm::chain_broadcast, textbook::chain_broadcast, textbook::around},
    {algorithm::chain_reduce, textbook::chain_reduce, textbook::around}};
constexpr Family kTrees = {
    {algorithm::tree_all_reduce, textbook::tree_all_reduce, textbook::up_and_down},
    {algorithm::direct_all_gather, textbook::exchange, textbook::one_hop},
    {algorithm::bruck_reduce_scatter, textbook::exchange, textbook::logarithmic},
    {algorithm::tree_broadcast, textbook::tree_broadcast, textbook::up_or_down},
    {algorithm::tree_reduce, textbook::tree_reduce, textbook::up_or_down}};
constexpr Family kWindows = {
    {algorithm::two_shot_window_all_reduce, textbook::exchange, textbook::two_hops},
    {algorithm::direct_window_all_gather, textbook::read_others, textbook::two_hops},
    {algorithm::direct_window_reduce_scatter, textbook::read_others, textbook::two_hops},
    {algorithm::direct_window_broadcast, textbook::read_root, textbook::two_hops},
    {algorithm::direct_window_reduce, textbook::root_reads, textbook::two_hops}};

// Any algorithm inside of groups and any across, also of different kinds.
TEST(Hierarchical, ComposesWhateverThereIs) {
  for (const Family* inner : {&kRings, &kTrees, &kWindows}) {
    for (const Family* outer : {&kRings, &kTrees, &kWindows}) {
      for (const Collective c :
           {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
            Collective::broadcast, Collective::reduce}) {
        for (int ranks = 1; ranks <= 14; ++ranks) {
          for (int group = 1; group <= ranks; ++group) {
            if (needs_equal_groups(c) && ranks % group != 0) continue;
            const PlanRequest request{c, ranks, is_rooted(c) ? ranks - 1 : 0, 1, group};
            SCOPED_TRACE(fmt::format("{} {} ranks group {}", name(c), ranks, group));
            Plan plan;
            for (int rank = 0; rank < ranks; ++rank) {
              plan.ranks.push_back(
                  algorithm::compose_hierarchical(request, "mixed", *inner, *outer, rank));
            }
            plan.header = plan.ranks.front().header;
            for (const bool in_place : {false, true}) {
              expect_proved(plan, in_place, [&](int rank) {
                return algorithm::hierarchical_traffic(request, *inner, *outer, rank);
              });
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Hierarchical, RingsInRingsMoveNoMoreThanOneRing) {
  const Algorithm& nested = *find_algorithm(Collective::all_reduce, "hierarchical");
  const Algorithm& ring = *find_algorithm(Collective::all_reduce, "ring");
  const PlanRequest request{Collective::all_reduce, 24, 0, 1, 4};
  for (int rank = 0; rank < 24; ++rank) {
    EXPECT_EQ(generate_plan(nested, request).header.pieces, 24U);
    EXPECT_EQ(nested.textbook(request, rank), ring.textbook(request, rank));
  }
}

TEST(Hierarchical, ChoosesTheDivisorNearestTheRoot) {
  const Algorithm& nested = *find_algorithm(Collective::all_reduce, "hierarchical");
  for (const auto& [ranks, group] : {std::pair{12, 3}, {16, 4}, {7, 1}, {1, 1}, {1000, 25}}) {
    const PlanRequest open{Collective::all_reduce, ranks};
    const PlanRequest told{Collective::all_reduce, ranks, 0, 1, group};
    EXPECT_EQ(nested.generate(open, ranks - 1).operands, nested.generate(told, ranks - 1).operands);
  }
}

// Ranks that are bound to domains in turn, in blocks, or unevenly.
TEST(ByDomain, PlansAreProved) {
  const auto in_turn = [](int rank, int) { return rank % 2 == 0 ? 7 : 3; };
  const auto in_threes = [](int rank, int) { return (rank * 5 + 1) % 3; };
  const auto one_apart = [](int rank, int ranks) { return rank == ranks / 2 ? 1 : 0; };
  const auto uneven = [](int rank, int) { return rank < 1 ? 0 : rank < 4 ? 1 : 2; };
  for (const auto& domain_of :
       std::vector<std::function<int(int, int)>>{in_turn, in_threes, one_apart, uneven}) {
    for (const Algorithm& a : algorithms()) {
      for (const int ranks : {2, 3, 4, 6, 8, 9, 12, 16}) {
        std::vector<int> of;
        for (int r = 0; r < ranks; ++r) of.push_back(domain_of(r, ranks));
        const Domains domains(of);
        for (const int root : {0, ranks - 1}) {
          if (root > 0 && !is_rooted(a.collective)) continue;
          const PlanRequest request{a.collective, ranks, root};
          SCOPED_TRACE(fmt::format("{} domains {}", text_of(a, request), fmt::join(of, " ")));
          Plan plan;
          for (int r = 0; r < ranks; ++r) {
            plan.ranks.push_back(generate(a, request, r, domains));
            ASSERT_EQ(plan.ranks.back().rank, r);
            ASSERT_EQ(plan.ranks.back().header, plan.ranks.front().header);
          }
          plan.header = plan.ranks.front().header;
          for (const bool in_place : {false, true}) {
            if (in_place && !has_in_place(a.collective)) continue;
            const Verdict verdict = verify(plan, {.in_place = in_place});
            ASSERT_TRUE(verdict.proved) << verdict.story;
          }
        }
      }
    }
  }
}

/// Messages with data that ranks of different domains send to each other.
int messages_between_domains(const Algorithm& a, int ranks, const Domains& of,
                             const Domains& used) {
  int messages = 0;
  for (int r = 0; r < ranks; ++r) {
    const RankPlan plan = generate(a, {a.collective, ranks}, r, used);
    for (const auto& lane : plan.lanes) {
      for (const Step& step : lane) {
        if (step.count == 0) continue;
        for (const Operand& o : plan.destinations(step)) {
          messages += o.is_link() && !of.near(r, o.rank) ? 1 : 0;
        }
      }
    }
  }
  return messages;
}

TEST(ByDomain, RingsCrossEachBorderOnce) {
  const Algorithm& ring = *find_algorithm(Collective::all_gather, "ring");
  const Domains in_turn(std::vector{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2});
  EXPECT_EQ(messages_between_domains(ring, 12, in_turn, {}), 12 * 11);
  EXPECT_EQ(messages_between_domains(ring, 12, in_turn, in_turn), 3 * 11);
}

TEST(ByDomain, GroupsAreDomains) {
  const Algorithm& nested = *find_algorithm(Collective::all_reduce, "hierarchical");
  const Domains in_turn(std::vector{0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_EQ(in_turn.group(), 4);
  // Four pairs; each sums up a quarter: two messages there, two back.
  EXPECT_EQ(messages_between_domains(nested, 8, in_turn, in_turn), 4 * 4);
}

TEST(ByDomain, DomainsThatNobodyKnowsOrThatAreOneChangeNothing) {
  const Algorithm& ring = *find_algorithm(Collective::all_gather, "ring");
  for (const Domains& domains : {Domains(), Domains(std::vector{4, 4, 4}),
                                 Domains(std::vector{0, -1, 1}), Domains(std::vector{0, 1})}) {
    EXPECT_EQ(generate(ring, {Collective::all_gather, 3}, 1, domains).operands,
              ring.generate({Collective::all_gather, 3}, 1).operands);
  }
  EXPECT_EQ(Domains(std::vector{0, -1, 1}).count(), 1);
  EXPECT_EQ(Domains(std::vector{0, 0, 1, 2, 2}).group(), 2);
  EXPECT_EQ(Domains(std::vector{0, 0, 0, 1, 2, 2}).group(), 0) << "3, 2, 1";
  EXPECT_EQ(Domains::even(7, 2).group(), 4);
}

void expect_refused(const Algorithm& a, const PlanRequest& request, int rank,
                    const std::string& part) {
  try {
    a.generate(request, rank);
    ADD_FAILURE() << "accepted: " << text_of(a, request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Requests, ThatMakeNoSenseAreRefused) {
  for (const Algorithm& a : algorithms()) {
    SCOPED_TRACE(text_of(a, {a.collective}));
    expect_refused(a, {a.collective, 0}, 0, "at least 1");
    expect_refused(a, {a.collective, -3}, 0, "at least 1");
    expect_refused(a, {a.collective, 4}, 4, "rank 4 is not one of 0 to 3");
    expect_refused(a, {a.collective, 4}, -1, "rank -1 is not one of 0 to 3");
    if (is_rooted(a.collective)) {
      expect_refused(a, {a.collective, 4, 4}, 0, "root 4 is not one of the ranks 0 to 3");
      expect_refused(a, {a.collective, 4, -1}, 0, "root -1");
    }
    if (a.lanes) {
      expect_refused(a, {a.collective, 4, 0, 256}, 0, "a rank has 255 lanes at most");
      expect_refused(a, {a.collective, 4, 0, 0}, 0, "1 to ");
    }
    if (is_hierarchical(a)) {
      expect_refused(a, {a.collective, 4, 0, 1, 5}, 0, "ask for 1 to 4");
      expect_refused(a, {a.collective, 4, 0, 1, -1}, 0, "ask for 1 to 4");
      PlanRequest sized{a.collective, 4};
      for (const std::vector<int>& groups : {std::vector{3, 2}, {3}, {4, 0}, {5, -1}}) {
        sized.groups = groups;
        expect_refused(a, sized, 0, "all together those that there are");
      }
      if (a.groups == Groups::equal) {
        sized.groups = {3, 1};
        expect_refused(a, sized, 0, "needs groups of equal size");
        expect_refused(a, {a.collective, 4, 0, 1, 3}, 0, "3 does not divide 4");
      }
    }
  }
}

}  // namespace
}  // namespace tutti

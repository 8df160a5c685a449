// Plans with invariant bits for several hosts: each host sums up a subtree of the canonical
// expression by itself, wherever its ranks are one. Proofs, what crosses between hosts, and
// mutants.
//
// TUTTI_TEST_MANY_RANKS=1 proves more than time allows by default.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/model/choose.h"
#include "collectives/model/domains.h"
#include "collectives/model/hosts.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "comm/plans.h"
#include "core/error.h"
#include "tests/collectives/whole_plan.h"

namespace tutti {
namespace {

/// The algorithms that send sums of hosts.
std::vector<const Algorithm*> hierarchical_ones() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& a : algorithms()) {
    if (a.invariant && a.groups != Algorithm::Groups::none) all.push_back(&a);
  }
  return all;
}

PlanParts plan_on(const Algorithm& a, int ranks, const Domains& layout, bool in_order = true) {
  PlanRequest request;
  request.collective = a.collective;
  request.ranks = ranks;
  request.scales = false;
  request.in_order = in_order;
  return {generate(a, request, 0, layout).header,
          [&a, request, layout](int r) { return generate(a, request, r, layout); }};
}

/// The host of each of `ranks` ranks, where hosts have so many each, again and again.
std::vector<int> hosts_of(int ranks, const std::vector<int>& sizes) {
  std::vector<int> of;
  for (int host = 0; static_cast<int>(of.size()) < ranks; ++host) {
    for (int i = 0; i < sizes[static_cast<std::size_t>(host) % sizes.size()]; ++i) {
      if (static_cast<int>(of.size()) < ranks) of.push_back(host);
    }
  }
  return of;
}

std::string what(const Algorithm& a, const std::vector<int>& hosts) {
  std::string text = fmt::format("{} {} on hosts", name(a.collective), a.name);
  for (const int h : hosts) text += fmt::format(" {}", h);
  return text;
}

void expect_proved(const Algorithm& a, const std::vector<int>& host_of) {
  const Domains hosts(host_of);
  const PlanParts plan = plan_on(a, static_cast<int>(host_of.size()), Domains::subtrees(hosts));
  for (const bool in_place : {false, true}) {
    const Verdict v = verify(plan, {.in_place = in_place, .invariant = Invariance::all});
    ASSERT_TRUE(v.proved) << what(a, host_of) << ": " << v.story;
  }
  EXPECT_EQ(unreachable(plan, hosts), "") << what(a, host_of);
}

/// The runs that subtrees() finds, by the first rank of each.
std::vector<int> runs(const std::vector<int>& host_of) {
  const Domains found = Domains::subtrees(Domains(host_of));
  std::vector<int> first;
  for (int r = 0; r < static_cast<int>(host_of.size()); ++r) {
    if (r == 0 || found.number_of(r) != found.number_of(r - 1)) first.push_back(r);
  }
  return first;
}

using List = std::vector<int>;

TEST(Subtrees, AreTheLongestRunsOfAPowerOfTwoThatHostsHaveWhole) {
  EXPECT_EQ(runs({0, 0, 0, 0}), (List{0}));
  EXPECT_EQ(runs({0, 0, 1, 1}), (List{0, 2}));
  EXPECT_EQ(runs({0, 0, 0, 0, 1, 1, 1, 1, 2}), (List{0, 4, 8}));
  EXPECT_EQ(runs({0, 0, 0, 0, 1, 1, 2, 2}), (List{0, 2, 4, 6}));
  EXPECT_EQ(runs({0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}), (List{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(runs({0, 0, 1, 1, 0, 0}), (List{0, 2, 4}));  // of a host, apart from each other
  EXPECT_EQ(runs({0, 0, 0, 1, 1, 1}), (List{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(runs({0, 1, 0, 1}), (List{0, 1, 2, 3}));
  EXPECT_EQ(runs({0, 1, 1}), (List{0, 1, 2}));
  EXPECT_EQ(runs({0, 0, 1}), (List{0, 2}));
}

TEST(InvariantHosts, AreProvedForEveryNumberOfRanksAndManyLayouts) {
  for (const Algorithm* const a : hierarchical_ones()) {
    for (int n = 1; n <= 17; ++n) {
      for (const List& sizes : {List{1}, List{2}, List{3}, List{4}, List{6}, List{8}, List{16},
                                List{4, 2, 2}, List{2, 4, 1}}) {
        expect_proved(*a, hosts_of(n, sizes));
      }
      List in_turn;
      for (int r = 0; r < n; ++r) in_turn.push_back(r / 2 % 2);
      expect_proved(*a, in_turn);
    }
  }
}

TEST(InvariantHosts, SendNoMoreThanInAnotherOrderWhereHostsAreSubtrees) {
  for (const Algorithm* const a : hierarchical_ones()) {
    for (const auto& [n, size] : {std::pair{4, 2}, {8, 4}, {8, 2}, {12, 4}, {7, 4}, {17, 8}}) {
      const Domains hosts(hosts_of(n, {size}));
      const auto in_order = chunks_across(plan_on(*a, n, Domains::subtrees(hosts)), hosts);
      const auto by_default = chunks_across(plan_on(*a, n, hosts, false), hosts);
      EXPECT_EQ(in_order, by_default) << a->name << ", " << n << " ranks, " << size << " a host";
      // Each host's sum of a chunk crosses once for each other host, not once for each rank.
      const Algorithm& flat = *find_algorithm(
          a->collective, a->collective == Collective::all_reduce ? "two_shot" : "direct");
      const PlanParts plan = plan_on(flat, n, Domains());
      EXPECT_LT(sent(in_order) * plan.header.pieces,
                sent(chunks_across(plan, hosts)) * plan_on(*a, n, hosts).header.pieces);
    }
  }
}

class ManyRanksOnHosts : public testing::TestWithParam<int> {};

TEST_P(ManyRanksOnHosts, AreProved) {
  const int n = GetParam();
  const bool all = std::getenv("TUTTI_TEST_MANY_RANKS") != nullptr;
  for (const Algorithm* const a : hierarchical_ones()) {
    for (const int size : {8, 16, 48}) {
      // Of 1,024 ranks, what runs on hosts of eight.
      if (n == 1024 && !all && (size != 8 || a->name != "hierarchical_direct")) continue;
      const Domains hosts(hosts_of(n, {size}));
      const PlanParts plan = plan_on(*a, n, Domains::subtrees(hosts));
      for (const bool in_place : {false, true}) {
        if (in_place && n == 1024 && !all) continue;
        const Verdict v = verify(plan, {.in_place = in_place, .invariant = Invariance::all});
        ASSERT_TRUE(v.proved) << a->name << ", " << n << " ranks: " << v.story;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InvariantHosts, ManyRanksOnHosts, testing::Values(64, 256, 1024));

TEST(InvariantHostsMutants, OfTwoSwappedSourcesAreRefused) {
  // So of every pair of neighbouring ranks of a host, and of neighbouring hosts.
  int mutants = 0;
  for (const Algorithm* const a : hierarchical_ones()) {
    const Plan plan =
        test::whole_plan(plan_on(*a, 7, Domains::subtrees(Domains(hosts_of(7, {2})))));
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (const auto& lane : plan.ranks[rank].lanes) {
        for (const Step& step : lane) {
          if (step.count == 0) continue;
          for (std::uint32_t s = 0; s + 1 < step.sources; ++s) {
            Plan mutant = plan;
            Operand* const sources =
                mutant.ranks[rank].operands.data() + step.first_operand + step.destinations;
            std::swap(sources[s], sources[s + 1]);
            const Verdict v = verify(mutant, {.invariant = Invariance::all});
            EXPECT_FALSE(v.proved) << a->name << ", rank " << rank;
            EXPECT_NE(v.story.find("has bits that depend on the plan"), std::string::npos)
                << v.story;
            ++mutants;
          }
        }
      }
    }
  }
  EXPECT_GT(mutants, 100);
}

TEST(InvariantHostsMutants, ThatRoundAHostsSumAreRefusedForNarrowTypes) {
  for (const Algorithm* const a : hierarchical_ones()) {
    Plan plan = test::whole_plan(plan_on(*a, 4, Domains::subtrees(Domains(hosts_of(4, {2})))));
    plan.header.format = Format::plain;
    for (RankPlan& part : plan.ranks) part.header.format = Format::plain;
    const Verdict v = verify(plan, {.invariant = Invariance::all});
    EXPECT_FALSE(v.proved);
    EXPECT_NE(v.story.find("it is round(round(in[0]@0 + in[0]@1) + round(in[0]@2 + in[0]@3)), but "
                           "the canonical expression is round((in[0]@0 + in[0]@1) + (in[0]@2 + "
                           "in[0]@3))"),
              std::string::npos)
        << v.story;
  }
}

TEST(InvariantHostsMutants, WithHostsThatAreNoSubtreesAreRefused) {
  for (const Algorithm* const a : hierarchical_ones()) {
    // Ranks by hosts, which are in turn: another order of hosts, and of ranks.
    const PlanParts in_turn = plan_on(*a, 4, Domains(List{0, 1, 0, 1}));
    const Verdict v = verify(in_turn, {.invariant = Invariance::float32_up});
    EXPECT_FALSE(v.proved);
    EXPECT_NE(v.story.find("it is (in[0]@0 + in[0]@2) + (in[0]@1 + in[0]@3), but"),
              std::string::npos)
        << v.story;
    // Hosts of three: no such plan is made for them.
    EXPECT_THROW(plan_on(*a, 6, Domains(hosts_of(6, {3}))), Error);
    EXPECT_THROW(plan_on(*a, 8, Domains(List{0, 0, 1, 1, 2, 2, 2, 2})), Error);
    // In the default order they are right, but no canonical expression.
    const PlanParts by_default = plan_on(*a, 8, Domains(hosts_of(8, {2})), false);
    EXPECT_TRUE(verify(by_default).proved);
    EXPECT_FALSE(verify(by_default, {.invariant = Invariance::float32_up}).proved);
  }
}

// --- What a communicator runs --------------------------------------------------------------------

Platform platform(const List& host_of) {
  Machine m = default_machine();
  m.net_wire = 8 * 1024 / 10.0;  // 10 Gbit/s
  const int ranks = static_cast<int>(host_of.size());
  Platform p{m, ranks, ranks, {32, 64 << 10, 8}, 4 << 20};
  p.hosts = Domains(host_of);
  p.domains = Domains::on_hosts(host_of, List(host_of.size(), -1));
  return p;
}

Signature call_of(DataType type, ReduceKind kind = ReduceKind::sum) {
  Signature call;
  call.collective = Collective::all_reduce;
  call.type = type;
  call.kind = kind;
  return call;
}

TEST(InvariantHosts, SumInTheCanonicalOrderWhereTheOrderMatters) {
  const Algorithm& a = *find_algorithm(Collective::all_reduce, "hierarchical_direct");
  const List host_of{0, 0, 1, 1};
  const Domains hosts(host_of);
  for (int r = 0; r < 4; ++r) {
    Findings findings;
    Plans plans(r, platform(host_of), {}, std::string(a.name), true, {.invariant = true}, findings);
    const auto runs = [&](DataType type, ReduceKind kind = ReduceKind::sum) {
      return to_text(plans.get(call_of(type, kind), 1 << 20, Access::windows).plan);
    };
    const std::string in_order = to_text(plan_on(a, 4, Domains::subtrees(hosts)).part(r));
    const std::string by_default = to_text(plan_on(a, 4, hosts, false).part(r));
    EXPECT_NE(in_order, by_default);
    EXPECT_EQ(runs(DataType::float32), in_order);
    EXPECT_EQ(runs(DataType::float64, ReduceKind::avg), in_order);
    EXPECT_EQ(runs(DataType::bfloat16), in_order);
    EXPECT_EQ(runs(DataType::float8_e4m3, ReduceKind::prod), in_order);
    EXPECT_EQ(runs(DataType::int32), by_default);
    EXPECT_EQ(runs(DataType::bfloat16, ReduceKind::max), by_default);
    EXPECT_NO_THROW(plans.check(call_of(DataType::float32)));
    EXPECT_NO_THROW(plans.check(call_of(DataType::int8)));
    EXPECT_NO_THROW(plans.check(call_of(DataType::bfloat16)));
  }
}

TEST(InvariantHosts, AreChosenForLongMessagesOfAllTypes) {
  const auto chosen = [](const List& host_of, DataType type, Collective c) {
    Chooser chooser(platform(host_of));
    Workload w{c, 64 << 20, type};
    w.invariant = true;
    for (const Prediction& p : chooser.candidates(w)) {
      EXPECT_TRUE(p.algorithm->invariant) << p.algorithm->name;
    }
    return chooser.choose(w).name.substr(0, 12);
  };
  const List four_of_eight = hosts_of(32, {8});
  for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce,
                             Collective::reduce_scatter_v}) {
    for (const DataType type : {DataType::float32, DataType::float64, DataType::float16,
                                DataType::bfloat16, DataType::float8_e5m2}) {
      // A sum in float32 has as many bytes as four inputs of 8 bits; and all sums of a reduce come
      // to one host.
      const bool is_short = size_of(type) == 1;
      for (const List& hosts : {List{0, 0, 0, 0, 1, 1, 1, 1}, four_of_eight}) {
        if (is_short && (hosts.size() == 8 || c == Collective::reduce)) continue;
        EXPECT_EQ(chosen(hosts, type, c), "hierarchical")
            << name(c) << " of " << name(type) << ", " << hosts.size() << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace tutti

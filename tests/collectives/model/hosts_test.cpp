// Ranks on several hosts: every algorithm is proved for many shapes; no plan that may run addresses
// memory of another host, also none of the user's; and all ranks take the same plan.
#include "collectives/model/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/model/choose.h"
#include "collectives/needs.h"
#include "collectives/verify.h"
#include "comm/plans.h"
#include "core/error.h"
#include "tests/collectives/model/hosts_shapes.h"

namespace tutti {
namespace {

using namespace test;

/// Ranks on these hosts, bound in turn to two caches of each.
Domains caches_on(const std::vector<int>& host) {
  std::vector<int> cache;
  for (std::size_t r = 0; r < host.size(); ++r) cache.push_back(static_cast<int>(r / 2 % 2));
  return Domains::on_hosts(host, cache);
}

TEST(Hosts, EveryPlanIsProvedAndAddressesNoOtherHostIfItMayRun) {
  for (const std::vector<int>& host : kShapes) {
    const int ranks = static_cast<int>(host.size());
    const Domains hosts(host);
    for (const Domains& caches : {Domains(), caches_on(host)}) {
      const Domains layout = laid_out(hosts, caches);
      Platform p = platform(host);
      p.domains = caches;
      Chooser chooser(p);
      for (const Algorithm& a : algorithms()) {
        for (const int root : {0, ranks / 2, ranks - 1}) {
          if (root > 0 && !is_rooted(a.collective)) continue;
          const PlanRequest request{a.collective, ranks, root};
          SCOPED_TRACE(fmt::format("{} {} on hosts {} root {}", name(a.collective), a.name,
                                   fmt::join(host, " "), root));
          const Plan plan = laid_out_plan(a, request, layout);
          const bool crosses = std::ranges::any_of(
              plan.ranks, [&](const RankPlan& part) { return addresses_across(part, hosts); });
          EXPECT_EQ(chooser.may_run(a), !crosses);
          EXPECT_EQ(unreachable(plan, hosts).empty(), !crosses);
          EXPECT_TRUE(!crosses || a.windows);
          const Use use = use_of(a, request, layout, hosts);
          const PlanNeeds needs = needs_of(plan);
          EXPECT_EQ(use.across, crosses);
          if (!crosses && a.collective != Collective::barrier) {
            EXPECT_EQ(use.path.windows, needs.path.windows);
            EXPECT_EQ(use.path.link_data, needs.path.link_data);
          }
          for (const bool in_place : {false, true}) {
            if (in_place && !has_in_place(a.collective)) continue;
            const Verdict verdict = verify(plan, {.in_place = in_place});
            ASSERT_TRUE(verdict.proved) << verdict.story;
            for (int r = 0; r < ranks; ++r) {
              ASSERT_EQ(verdict.traffic[static_cast<std::size_t>(r)],
                        textbook(a, request, r, layout))
                  << "rank " << r;
            }
          }
        }
      }
    }
  }
}

// Of many ranks, some are looked at: they show what all parts use.
TEST(Hosts, TypicalRanksShowWhatAllDo) {
  const std::vector<std::vector<int>> shapes = {in_order({24}),
                                                in_order({9, 9}),
                                                in_turn(6, 4),
                                                in_turn(20, 1),
                                                in_order({5, 4, 4, 4, 1, 3}),
                                                in_order({1, 1, 1, 1, 1, 13}),
                                                in_order({8, 8, 8, 4}),
                                                in_order({3, 3, 3, 3, 3, 3, 2})};
  for (const std::vector<int>& host : shapes) {
    const int ranks = static_cast<int>(host.size());
    const Domains hosts(host);
    for (const Domains& caches : {Domains(), caches_on(host)}) {
      const Domains layout = laid_out(hosts, caches);
      for (const Algorithm& a : algorithms()) {
        if (!a.windows) continue;
        for (const int root : {0, ranks / 2, ranks - 1}) {
          if (root > 0 && !is_rooted(a.collective)) continue;
          const PlanRequest request{a.collective, ranks, root};
          SCOPED_TRACE(fmt::format("{} {} on hosts {} root {}", name(a.collective), a.name,
                                   fmt::join(host, " "), root));
          Plan plan;
          try {
            plan = laid_out_plan(a, request, layout);
          } catch (const Error&) {  // groups that do not divide the ranks
            continue;
          }
          const bool crosses = std::ranges::any_of(
              plan.ranks, [&](const RankPlan& part) { return addresses_across(part, hosts); });
          const Use use = use_of(a, request, layout, hosts);
          ASSERT_EQ(use.across, crosses);
          if (crosses) continue;
          const PlanNeeds needs = needs_of(plan);
          EXPECT_EQ(use.path.windows, needs.path.windows);
          EXPECT_EQ(use.path.link_data, needs.path.link_data);
        }
      }
    }
  }
}

TEST(Hosts, CollectivesHaveAnAlgorithmWithWindowsInsideAndLinksAcross) {
  for (const std::vector<int>& host : kShapes) {
    const Domains hosts(host);
    Chooser chooser(platform(host));
    for (const Collective c :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::reduce, Collective::reduce_scatter_v}) {
      EXPECT_TRUE(std::ranges::any_of(algorithms(), [&](const Algorithm& a) {
        return a.collective == c && a.windows && chooser.may_run(a);
      })) << name(c);
    }
    for (const Algorithm& a : algorithms()) {
      if (is_composed_or_grouped(a) || hosts.count() == 1) continue;
      EXPECT_EQ(chooser.may_run(a), !a.windows) << name(a.collective) << " " << a.name;
    }
  }
}

// --- Users' plans --------------------------------------------------------------------------------

constexpr std::string_view kThroughWindows = R"(tutti plan 1
broadcast by_hand  ranks 3  root 0  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0], to(2) <- in[0]
    to(1) <- ()
    () <- from(1)
rank 1
  lane 0
    () <- from(0)
    out[0] <- in[0]@0
    to(0) <- ()
rank 2
  lane 0
    out[0] <- from(0)
)";

TEST(UsersPlans, MayNotAddressMemoryOfAnotherHost) {
  Findings findings;
  const auto plans = [&](const std::vector<int>& host) {
    return Plans(1, platform(host), {}, "", true, {}, findings);
  };
  const auto ready = plans({0, 0, 1}).prove(kThroughWindows);
  EXPECT_TRUE(ready->path.windows);
  EXPECT_TRUE(ready->path.link_data);
  EXPECT_NO_THROW(plans({0, 0, 0}).prove(kThroughWindows));
  try {
    plans({0, 1, 0}).prove(kThroughWindows);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("rank 1 on host 1 addresses in[0]@0, but rank 0 is on "
                                         "host 0"),
              std::string::npos)
        << e.what();
  }
}

// All ranks have to cut a call alike, also where some of them use windows alone.
TEST(Plans, SayTheSameOnAllRanks) {
  for (const std::vector<int>& host : kShapes) {
    for (const Algorithm& a : algorithms()) {
      if (!is_composed_or_grouped(a)) continue;
      std::vector<bool> windows, link_data;
      std::vector<std::string> names;
      for (int r = 0; r < static_cast<int>(host.size()); ++r) {
        Findings findings;
        Plans plans(r, platform(host), {}, std::string(a.name), true, {}, findings);
        Signature call;
        call.collective = a.collective;
        call.type = DataType::float32;
        const ReadyPlan& plan = plans.get(call, 1 << 20, Access::windows);
        EXPECT_FALSE(addresses_across(plan.plan, Domains(host)));
        windows.push_back(plan.path.windows);
        link_data.push_back(plan.path.link_data);
        names.push_back(plan.plan.header.algorithm);
      }
      EXPECT_EQ(windows, std::vector<bool>(host.size(), windows.front()));
      EXPECT_EQ(link_data, std::vector<bool>(host.size(), link_data.front()));
      EXPECT_EQ(names, std::vector<std::string>(host.size(), names.front()));
    }
  }
}

// --- Domains of several hosts --------------------------------------------------------------------

TEST(Domains, OfDifferentHostsAreDifferent) {
  const std::vector<int> host{0, 0, 0, 1, 1, 1};
  const std::vector<int> cache{0, 1, 0, 0, 1, 0};
  const Domains caches = Domains::on_hosts(host, cache);
  EXPECT_EQ(caches.count(), 4);
  EXPECT_TRUE(caches.near(0, 2));
  EXPECT_FALSE(caches.near(0, 3));
  EXPECT_EQ(caches.among(std::vector{0, 2, 3, 5}).count(), 2);
  // Where one rank of a host is not bound, nobody knows about that host.
  const Domains partly = Domains::on_hosts(host, std::vector{0, 1, -1, 0, 1, 0});
  EXPECT_EQ(partly.count(), 3);
  EXPECT_TRUE(partly.near(0, 1));
  EXPECT_FALSE(partly.near(3, 4));
  // One host: as without.
  EXPECT_EQ(Domains::on_hosts(std::vector(6, 0), cache).count(), 2);
  EXPECT_EQ(Domains::on_hosts(std::vector(3, 0), std::vector{0, -1, 1}).count(), 1);
}

TEST(Domains, AreLaidOutByHostAndThenByCache) {
  const std::vector<int> host{0, 1, 0, 1, 0, 1, 1};
  const std::vector<int> cache{0, 0, 1, 1, 0, 0, 1};
  const Domains layout = laid_out(Domains(host), Domains::on_hosts(host, cache));
  std::vector<int> order;
  for (int place = 0; place < 7; ++place) order.push_back(layout.rank_at(place));
  EXPECT_EQ(order, (std::vector{1, 5, 3, 6, 0, 4, 2})) << "the larger host first";
  EXPECT_EQ(layout.sizes(), (std::vector{4, 3}));
  EXPECT_EQ(layout.group(), 4);
}

}  // namespace
}  // namespace tutti

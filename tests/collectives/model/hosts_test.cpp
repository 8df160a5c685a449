// Ranks on several hosts: every algorithm is proved for many shapes; no plan that may run addresses
// memory of another host; plans send between hosts what formulas say, to the byte; and the chosen
// plans send little across, in few hops.
#include "collectives/model/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "collectives/model/choose.h"
#include "collectives/model/host_scenario.h"
#include "collectives/needs.h"
#include "collectives/text/text.h"
#include "collectives/verify.h"
#include "comm/plans.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr ConnectionShape kLinks{32, 64 << 10, 8};
constexpr std::size_t kTile = 4 << 20;

/// The host of each rank: `sizes` of them, one host after the other, or in turn.
std::vector<int> in_order(const std::vector<int>& sizes) {
  std::vector<int> of;
  for (std::size_t h = 0; h < sizes.size(); ++h) {
    of.insert(of.end(), static_cast<std::size_t>(sizes[h]), static_cast<int>(h));
  }
  return of;
}
std::vector<int> in_turn(int hosts, int each) {
  std::vector<int> of;
  for (int r = 0; r < hosts * each; ++r) of.push_back(r % hosts);
  return of;
}

const std::vector<std::vector<int>> kShapes = {
    in_order({4}),    in_order({1, 1}),     in_order({2, 2}),
    in_order({3, 3}), in_order({2, 2, 2}),  in_order({2, 2, 2, 2}),
    in_order({1, 3}), in_order({4, 1, 2}),  in_order({1, 1, 1, 1, 1}),
    in_turn(2, 2),    in_turn(3, 2),        in_turn(2, 4),
    {1, 0, 0, 1, 0},  {5, 5, 9, 2, 9, 9, 2}};

/// Ranks on these hosts, bound in turn to two caches of each.
Domains caches_on(const std::vector<int>& host) {
  std::vector<int> cache;
  for (std::size_t r = 0; r < host.size(); ++r) cache.push_back(static_cast<int>(r / 2 % 2));
  return Domains::on_hosts(host, cache);
}

Platform platform(const std::vector<int>& host, double gbit = 10) {
  Machine m = default_machine();
  m.l2_bytes = 1 << 20;
  m.l3_bytes = 32 << 20;
  m.memory_bandwidth = 40;
  m.net_wire = 8 * 1024 / gbit;
  const int ranks = static_cast<int>(host.size());
  Platform p{m, ranks, ranks, kLinks, kTile};
  p.hosts = Domains(host);
  p.domains = Domains::on_hosts(host, std::vector<int>(host.size(), -1));
  return p;
}

Plan laid_out_plan(const Algorithm& a, const PlanRequest& request, const Domains& layout) {
  Plan plan;
  for (int r = 0; r < request.ranks; ++r) plan.ranks.push_back(generate(a, request, r, layout));
  plan.header = plan.ranks.front().header;
  return plan;
}

PlanParts parts_of(const Plan& plan) {
  return {plan.header, [&](int r) { return plan.ranks[static_cast<std::size_t>(r)]; }};
}

bool is_composed_or_grouped(const Algorithm& a) { return a.name.starts_with("hierarchical"); }

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
            EXPECT_EQ(use.reach.windows, needs.windows);
            EXPECT_EQ(use.reach.link_data, needs.link_data);
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
          EXPECT_EQ(use.reach.windows, needs.windows);
          EXPECT_EQ(use.reach.link_data, needs.link_data);
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

// Hosts, ranks of each. However the ranks are numbered, and whatever the hosts' sizes are, each
// byte of a sum crosses to the one host that adds it up from all others, and each of a result from
// there to all others.
TEST(Hosts, HierarchicalPlansSendAcrossWhatTheFormulaSays) {
  for (const std::vector<int>& host : kShapes) {
    const int ranks = static_cast<int>(host.size());
    const Domains hosts(host);
    const auto others = static_cast<std::uint64_t>(hosts.count() - 1);
    for (const Algorithm& a : algorithms()) {
      if (!is_composed_or_grouped(a) || a.name == "hierarchical_window") continue;
      // Groups that cannot be hosts: what has to have equal ones divides the ranks otherwise.
      if (a.equal_groups && hosts.count() > 1 && hosts.sizes().back() != hosts.sizes().front()) {
        continue;
      }
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
        SCOPED_TRACE(fmt::format("{} {} on hosts {}, {} elements", name(a.collective), a.name,
                                 fmt::join(host, " "), count));
        const Plan plan =
            laid_out_plan(a, {a.collective, ranks, ranks / 2 * is_rooted(a.collective)}, hosts);
        const bool in_blocks_of_ranks =
            needs_equal_groups(a.collective) || a.collective == Collective::reduce_scatter_v;
        const std::uint64_t bytes = count * 4 * (in_blocks_of_ranks ? std::uint64_t(ranks) : 1);
        const Tiling tiling =
            cut(plan.header, {a.windows, true, 0}, count, bytes, DataType::float32, kLinks, kTile);
        const std::vector<Traffic> by_host =
            bytes_across(parts_of(plan), hosts, tiling, count, DataType::float32);
        const std::uint64_t ways = a.collective == Collective::all_reduce ? 2 : 1;
        EXPECT_EQ(sent(by_host), ways * others * bytes);
        std::uint64_t received = 0;
        for (const Traffic& t : by_host) received += t.received;
        EXPECT_EQ(received, sent(by_host));
      }
    }
  }
}

// S bytes. Host k's ranks own the part n_k / n of them: the host sends its sums of the rest, and
// its own results to all others. With equal hosts that is 2 (H-1)/H S for all_reduce.
TEST(Hosts, EachHostSendsItsShare) {
  for (const std::vector<int>& host : kShapes) {
    const auto n = static_cast<std::uint64_t>(host.size());
    const Domains hosts(host);
    if (hosts.count() == 1) continue;
    const auto h = static_cast<std::uint64_t>(hosts.count());
    for (const Collective c :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      const Algorithm& a = *find_algorithm(c, "hierarchical_direct");
      const Plan plan = laid_out_plan(a, {c, static_cast<int>(n)}, hosts);
      const std::vector<Traffic> by_host = chunks_across(parts_of(plan), hosts);
      std::vector<std::uint64_t> sizes(h);
      for (std::size_t r = 0; r < n; ++r) {
        ++sizes[static_cast<std::size_t>(hosts.number_of(static_cast<int>(r)))];
      }
      for (std::size_t k = 0; k < h; ++k) {  // a chunk is a rank's part of all
        const std::uint64_t sums = n - sizes[k];
        const std::uint64_t results = sizes[k] * (h - 1);
        Traffic expected{sums, results};
        if (c == Collective::all_gather) expected = {results, sums};
        if (c == Collective::all_reduce) expected = {sums + results, sums + results};
        EXPECT_EQ(by_host[k], expected) << name(c) << " host " << k;
      }
    }
  }
}

TEST(Hosts, OneRingCrossesEachBorderOnceButSendsMoreAcross) {
  const Algorithm& ring = *find_algorithm(Collective::all_reduce, "ring");
  for (const std::vector<int>& host : {in_order({2, 2}), in_turn(2, 2), in_turn(4, 8)}) {
    const auto n = static_cast<std::uint64_t>(host.size());
    const Domains hosts(host);
    const Plan plan = laid_out_plan(ring, {Collective::all_reduce, static_cast<int>(n)}, hosts);
    for (const Traffic& t : chunks_across(parts_of(plan), hosts)) {
      EXPECT_EQ(t, (Traffic{2 * (n - 1), 2 * (n - 1)}));
    }
  }
}

TEST(Hosts, PredictionsCountWhatTheBusiestHostSends) {
  constexpr std::size_t kBytes = 16 << 20;
  const auto across = [&](const char* algorithm, const std::vector<int>& host) {
    return predict(*find_algorithm(Collective::all_reduce, algorithm),
                   {Collective::all_reduce, kBytes, DataType::float32}, platform(host))
        .across;
  };
  EXPECT_EQ(across("hierarchical_direct", in_turn(2, 2)), kBytes);
  EXPECT_EQ(across("hierarchical", in_turn(2, 2)), kBytes);
  EXPECT_EQ(across("ring", in_turn(2, 2)), 1.5 * kBytes);
  EXPECT_EQ(across("hierarchical_direct", in_order({2, 2, 2, 2})), 1.5 * kBytes);
  EXPECT_EQ(across("hierarchical_direct", in_turn(8, 4)), 1.75 * kBytes) << "not simulated";
  EXPECT_EQ(across("ring", in_order({4})), 0);
}

// --- Time ----------------------------------------------------------------------------------------

/// Ranks 0 and 1 each send a message to ranks 2 and 3.
Plan two_messages() {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = 4;
  Plan plan{header, {}};
  for (int r = 0; r < 4; ++r) {
    RankPlanBuilder b(header, r);
    if (r < 2) b.lane(0).step({to(r + 2)}, {in(0)});
    if (r >= 2) b.lane(0).step({out(0)}, {from(r - 2)});
    plan.ranks.push_back(b.finish());
  }
  return plan;
}

double time_of_two_messages(const std::vector<int>& host) {
  const Domains hosts(host);
  const StepCosts costs{{{10}}, {{10}}, {{3}}, {{3}}};
  const MessageCost message{.wire = 100};
  const OfSteps<MessageCost> messages(4, {{message}});
  SimulationOptions o;
  o.cores = 4;
  o.latency_ns = 5;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  return simulate(two_messages(), costs, o);
}

TEST(Simulate, RanksOfAHostShareItsWire) {
  EXPECT_EQ(time_of_two_messages({0, 0, 0, 0}), 10 + 5 + 3);
  EXPECT_EQ(time_of_two_messages({0, 1, 2, 3}), 10 + 100 + 1000 + 3);
  EXPECT_EQ(time_of_two_messages({0, 0, 1, 1}), 10 + 2 * 100 + 1000 + 3);
  EXPECT_EQ(time_of_two_messages({0, 0, 1, 2}), 10 + 2 * 100 + 1000 + 3) << "the sender's";
  EXPECT_EQ(time_of_two_messages({0, 1, 2, 2}), 10 + 2 * 100 + 1000 + 3) << "the receiver's";
  // Each direction by itself.
  EXPECT_EQ(time_of_two_messages({0, 1, 1, 0}), 10 + 100 + 1000 + 3);
}

/// Rank 0 sends one message to rank 1, which first does something for `busy`.
double time_of_one_message(const MessageCost& message, double busy) {
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = 2;
  RankPlanBuilder sender(header, 0), receiver(header, 1);
  sender.lane(0).step({to(1)}, {in(0)});
  receiver.lane(0).step({tmp(0)}, {in(0)});
  receiver.lane(0).step({out(0)}, {from(0)});
  const Plan plan{header, {sender.finish(), receiver.finish()}};
  const Domains hosts(std::vector<int>{0, 1});
  const OfSteps<MessageCost> messages{{{message}}, {{message, message}}};
  SimulationOptions o;
  o.cores = 2;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  return simulate(plan, {{{10}}, {{busy, 3}}}, o);
}

TEST(Simulate, WhatSendsCarriesAndReceivesAMessageDoesSoAtOnce) {
  EXPECT_EQ(time_of_one_message({100, 100, 100, 1, 1}, 0), 10 + 3 * 100 + 1000 + 3);
  EXPECT_EQ(time_of_one_message({100, 100, 100, 0.1, 0.1}, 0), 10 + 10 + 100 + 1000 + 10 + 3);
  // Each one as the slowest.
  EXPECT_EQ(time_of_one_message({500, 100, 100, 0.1, 0.1}, 0), 10 + 500 + 10 + 1000 + 10 + 3);
  EXPECT_EQ(time_of_one_message({100, 500, 100, 0.1, 0.1}, 0), 10 + 10 + 500 + 1000 + 10 + 3);
  EXPECT_EQ(time_of_one_message({100, 100, 500, 0.1, 0.1}, 0), 10 + 10 + 10 + 1000 + 500 + 3);
  // A receiver that has something else to do receives later.
  EXPECT_EQ(time_of_one_message({100, 100, 100, 0.1, 0.1}, 5000), 5000 + 100 + 3);
}

TEST(Simulate, MessagesComeInTheOrderInWhichTheyLeave) {
  constexpr int kRanks = 4;
  PlanHeader header;
  header.collective = Collective::send_recv;
  header.ranks = kRanks;
  Plan plan{header, {}};
  StepCosts costs;
  for (int r = 0; r < kRanks; ++r) {
    RankPlanBuilder b(header, r);
    auto lane = b.lane(0);
    for (int d = 1; d < kRanks; ++d) lane.step({to((r + d) % kRanks)}, {in(0)});
    for (int d = 1; d < kRanks; ++d) lane.step({out(0)}, {from((r + kRanks - d) % kRanks)});
    plan.ranks.push_back(b.finish());
    costs.push_back({std::vector<double>(2 * (kRanks - 1), 0.0)});
  }
  const MessageCost message{.wire = 100};
  const OfSteps<MessageCost> messages(kRanks, {std::vector(2 * (kRanks - 1), message)});
  const Domains hosts(std::vector<int>{0, 1, 2, 3});
  SimulationOptions o;
  o.cores = kRanks;
  o.hosts = &hosts;
  o.net_latency_ns = 1000;
  o.messages = &messages;
  EXPECT_EQ(simulate(plan, costs, o), 3 * 100 + 1000) << "no wire stands idle";
}

TEST(Simulate, EachHostHasCoresOfItsOwn) {
  const Domains hosts(in_turn(2, 2));
  const StepCosts costs{{{10}}, {{10}}, {{3}}, {{3}}};
  SimulationOptions o;
  o.cores = 2;
  o.switch_ns = 100;
  o.hosts = &hosts;
  // Ranks 0 and 2 share a core, and ranks 1 and 3.
  EXPECT_EQ(simulate(two_messages(), costs, o), 10 + 100 + 3);
  o.cores = 4;
  EXPECT_EQ(simulate(two_messages(), costs, o), 10 + 3);
}

/// How many messages between hosts follow one from the other.
double hops_across(const Plan& plan, const Domains& hosts) {
  StepCosts nothing;
  for (const RankPlan& rank : plan.ranks) {
    nothing.emplace_back();
    for (const auto& lane : rank.lanes) nothing.back().emplace_back(lane.size(), 0.0);
  }
  SimulationOptions o;
  o.slots = 64;
  o.cores = plan.header.ranks;
  o.hosts = &hosts;
  o.net_latency_ns = 1;
  return simulate(plan, nothing, o);
}

TEST(Hosts, HopsAreThoseOfTheTextbook) {
  for (const std::vector<int>& host : kShapes) {
    const Domains hosts(host);
    if (hosts.count() == 1) continue;
    for (const Algorithm& a : algorithms()) {
      if (!a.windows || !is_composed_or_grouped(a) || a.name == "hierarchical_window") continue;
      const PlanRequest request{a.collective, static_cast<int>(host.size())};
      const Hops hops = a.hops(placed(a, request, hosts));
      EXPECT_EQ(hops_across(laid_out_plan(a, request, hosts), hosts), hops.across)
          << name(a.collective) << " " << a.name << " " << fmt::format("{}", fmt::join(host, " "));
    }
  }
}

TEST(Choose, OfLongMessagesLittleCrossesAWireOfOneGigabit) {
  for (const std::vector<int>& host :
       {in_order({2, 2}), in_turn(2, 2), in_order({1, 3}), in_order({4, 4, 4})}) {
    const Platform p = platform(host, 1);
    for (const Access access : {Access::windows, Access::none}) {
      for (const Collective c :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
            Collective::broadcast, Collective::reduce}) {
        const Workload w{c, 16 << 20, DataType::float32, access};
        Chooser chooser(p);
        const Algorithm& chosen = chooser.choose(w);
        double least = std::numeric_limits<double>::infinity();
        double sends = 0;
        for (const Prediction& candidate : chooser.candidates(w)) {
          least = std::min(least, candidate.across);
          if (candidate.algorithm == &chosen) sends = candidate.across;
        }
        EXPECT_LE(sends, least * 1.001)
            << name(c) << " " << chosen.name << " on " << fmt::format("{}", fmt::join(host, " "));
        // So the time is that of the wire, and little more.
        const double wire = sends * p.machine.net_wire / 1024;
        const double ns = predict(chosen, w, p).ns;
        EXPECT_GT(ns, wire);
        EXPECT_LT(ns, (access == Access::windows ? 1.25 : 1.5) * wire)
            << name(c) << " " << chosen.name;
      }
    }
  }
  const Workload w{Collective::all_reduce, 16 << 20, DataType::float32};
  EXPECT_TRUE(Chooser(platform(in_turn(2, 2), 1)).choose(w).name.starts_with("hierarchical"));
}

// Where cores are the limit, to cut a message costs more than it gains; longer ones gain by adding
// up less.
TEST(Choose, TwoHostsExchangeOnceUpToHundredsOfKiB) {
  Platform p = platform({0, 1}, 40);
  p.links = {32, 512 << 10, 4};
  p.least_piece = kLeastFarPiece;
  Chooser chooser(p);
  const auto chosen = [&](std::size_t bytes) {
    return chooser.choose({Collective::all_reduce, bytes, DataType::float32, Access::none}).name;
  };
  for (const std::size_t bytes : {8, 4 << 10, 32 << 10, 256 << 10}) {
    EXPECT_EQ(chosen(bytes), "recursive_doubling") << bytes;
  }
  EXPECT_EQ(chosen(16 << 20), "ring");
}

TEST(Choose, ShortMessagesTakeTheFewestHopsBetweenHosts) {
  for (const std::vector<int>& host : {in_order({2, 2}), in_turn(2, 2), in_order({1, 1}),
                                       in_order({1, 3}), in_turn(3, 2), in_order({4, 4})}) {
    const Platform p = platform(host);
    for (const Collective c : {Collective::all_reduce, Collective::all_gather,
                               Collective::reduce_scatter, Collective::broadcast}) {
      Chooser chooser(p);
      const Workload w{c, 8, DataType::float32};
      const auto hops = [&](const Algorithm& a) {
        return hops_across(laid_out_plan(a, {c, p.ranks}, p.layout()), p.hosts);
      };
      double fewest = std::numeric_limits<double>::infinity();
      for (const Prediction& candidate : chooser.candidates(w)) {
        fewest = std::min(fewest, hops(*candidate.algorithm));
      }
      EXPECT_EQ(hops(chooser.choose(w)), fewest)
          << name(c) << " " << chooser.choose(w).name << " on "
          << fmt::format("{}", fmt::join(host, " "));
    }
  }
}

TEST(Choose, NothingThatAddressesAnotherHostIsACandidate) {
  for (const std::vector<int>& host : {in_turn(2, 4), in_turn(4, 10), in_order({20, 3, 1})}) {
    const Platform p = platform(host);
    Chooser chooser(p);
    for (const Algorithm& a : algorithms()) {
      const Workload w{a.collective, 1 << 20, DataType::float32};
      EXPECT_TRUE(chooser.may_run(chooser.choose(w)));
      EXPECT_TRUE(chooser.may_run(a) || !predict(a, w, p).possible) << a.name;
      for (const Prediction& c : chooser.candidates(w)) EXPECT_TRUE(chooser.may_run(*c.algorithm));
    }
  }
}

TEST(Choose, ForManyHostsTakesNoLongerThanItIsWorth) {
  const auto start = std::chrono::steady_clock::now();
  Chooser chooser(platform(in_turn(125, 8)));
  const Algorithm& chosen = chooser.choose({Collective::all_reduce, 64 << 20, DataType::float32});
  EXPECT_FALSE(chosen.name == "one_shot" || chosen.name == "recursive_doubling") << chosen.name;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// A wire is never faster than its bandwidth, also where there are too many ranks to simulate.
TEST(Predict, TheWireIsALimit) {
  for (const std::vector<int>& host : {in_turn(2, 4), in_turn(4, 8)}) {
    const Platform p = platform(host, 1);
    for (const Algorithm& a : algorithms()) {
      const Prediction result = predict(a, {a.collective, 8 << 20, DataType::float32}, p);
      if (!result.possible || a.collective == Collective::barrier) continue;
      const double wire = result.across * p.machine.net_wire / 1024;
      EXPECT_GT(result.across, 0) << name(a.collective) << " " << a.name;
      EXPECT_GT(result.ns, 0.99 * wire) << name(a.collective) << " " << a.name;
      if (is_composed_or_grouped(a)) {
        EXPECT_LT(result.ns, 2 * wire) << name(a.collective) << " " << a.name;
      }
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
  EXPECT_TRUE(ready->windows);
  EXPECT_TRUE(ready->link_data);
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
        windows.push_back(plan.windows);
        link_data.push_back(plan.link_data);
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

// What plans of several hosts send from host to host: what formulas say, to the byte and to the
// hop. Part of hosts_test.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "collectives/model/hosts.h"
#include "collectives/model/predict.h"
#include "collectives/verify.h"
#include "tests/collectives/model/hosts_shapes.h"

namespace tutti {
namespace {

using namespace test;

PlanParts parts_of(const Plan& plan) {
  return {plan.header, [&](int r) { return plan.ranks[static_cast<std::size_t>(r)]; }};
}

/// How often all of the data cross from a host to another one.
std::uint64_t messages_across(const Algorithm& a, int hosts) {
  if (a.collective == Collective::barrier) return 0;
  if (a.name != "hierarchical_leaders") {
    return std::uint64_t(hosts - 1) * (a.collective == Collective::all_reduce ? 2 : 1);
  }
  const Algorithm& of_leaders = *find_algorithm(Collective::all_reduce, "recursive_doubling");
  std::uint64_t all = 0;
  for (int h = 0; h < hosts; ++h) all += of_leaders.textbook({a.collective, hosts}, h).sent;
  return all;
}

// Hosts, ranks of each. However the ranks are numbered, and whatever the hosts' sizes are, each
// byte of a sum crosses to the one host that adds it up from all others, and each of a result from
// there to all others.
TEST(Hosts, HierarchicalPlansSendAcrossWhatTheFormulaSays) {
  for (const std::vector<int>& host : kShapes) {
    const int ranks = static_cast<int>(host.size());
    const Domains hosts(host);
    for (const Algorithm& a : algorithms()) {
      if (!is_composed_or_grouped(a) || a.name == "hierarchical_window") continue;
      // Groups that cannot be hosts: what has to have equal ones divides the ranks otherwise.
      if (a.groups == Algorithm::Groups::equal && hosts.count() > 1 &&
          hosts.sizes().back() != hosts.sizes().front()) {
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
        const Tiling tiling = cut(plan.header, {.windows = a.windows, .buffers = a.windows}, count,
                                  bytes, DataType::float32, kLinks, kTile);
        const std::vector<Traffic> by_host =
            bytes_across(parts_of(plan), hosts, tiling, count, DataType::float32);
        EXPECT_EQ(sent(by_host), messages_across(a, hosts.count()) * bytes);
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

}  // namespace
}  // namespace tutti

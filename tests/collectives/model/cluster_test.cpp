// Simulations of plans on clusters: shares of links, times that can be worked out by hand, hosts
// that stand for all others, and pictures of all that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/cluster/parts.h"
#include "collectives/draw/run.h"
#include "collectives/model/fair_share.h"
#include "laboratory/predict/nccl_model.h"
#include "tests/collectives/model/clusters.h"
#include "tests/support/contains.h"
#include "tests/support/xml.h"

namespace tutti::cluster {
namespace {

double ends(const std::vector<FairShare::Change>& changes, int flow) {
  double at = -1;
  for (const auto& c : changes) at = c.flow == flow ? c.ends : at;
  return at;
}

TEST(FairShare, IsMaxMinFair) {
  // Links of 10 and 4. Of three flows, one over both and one on each, the narrow link fixes two at
  // 2, and the third gets the 8 that are left.
  FairShare share({10, 4});
  const int both = share.start(0, 100, std::vector{0, 1}, 0);
  const int wide = share.start(0, 100, std::vector{0}, 0);
  const int narrow = share.start(0, 100, std::vector{1}, 0);
  auto changes = share.update(0);
  EXPECT_DOUBLE_EQ(ends(changes, both), 50);
  EXPECT_DOUBLE_EQ(ends(changes, wide), 12.5);
  EXPECT_DOUBLE_EQ(ends(changes, narrow), 50);
  // At 10, 80 are left of `both`; alone on its narrow link it gets 4, and then 6 are left there.
  share.end(narrow);
  changes = share.update(10);
  EXPECT_DOUBLE_EQ(ends(changes, both), 10 + 80.0 / 4);
  EXPECT_DOUBLE_EQ(ends(changes, wide), 10 + 20.0 / 6);
}

TEST(FairShare, LetsEarlierClassesGoFirst) {
  FairShare share({10});
  const int later = share.start(0, 100, std::vector{0}, 1);
  EXPECT_DOUBLE_EQ(ends(share.update(0), later), 10);
  const int earlier = share.start(5, 20, std::vector{0}, 0);
  EXPECT_DOUBLE_EQ(ends(share.update(5), earlier), 7);
  EXPECT_EQ(share.rate(later), 0);
  share.end(earlier);
  EXPECT_DOUBLE_EQ(ends(share.update(7), later), 12);
}

TEST(ClusterSimulation, OfARingIsWhatTheTextbookSays) {
  const Cluster c = cluster("8xH100", 1);
  const double bytes = 8e8;
  const Simulated s = simulate(c, plan_of(Collective::all_reduce, "ring", 8), options(bytes));
  // 14 messages of an eighth at 18 x 20.6 GB/s, each seen 3.4 us after it was sent.
  EXPECT_NEAR(s.us, 14 * (3.4 + bytes / 8 / (18 * 20.6 * 1000)), 0.01);
  // With LL half of what is sent are flags; short, so only what is seen later counts.
  EXPECT_NEAR(
      simulate(c, plan_of(Collective::all_reduce, "ring", 8), options(8, GpuProtocol::ll)).us,
      14 * 0.6, 0.01);
}

TEST(ClusterSimulation, SharesTheMemoryOfHostsWithoutPeerAccess) {
  // All 8 GPUs put their data through 21.5 GB/s together.
  const Cluster c = cluster("8xRTX4090", 1);
  const double bytes = 8e8;
  const double us = simulate(c, plan_of(Collective::all_gather, "ring", 8), options(bytes / 8)).us;
  EXPECT_NEAR(us, 7 * (4.5 + bytes / 8 * 8 / 21.5e3), 1);
}

TEST(ClusterSimulation, OneHostStandsForAll) {
  // 512 ranks, all simulated, against as many as it takes.
  const Cluster c = cluster("8xH100", 64, "roce 8x400G");
  for (const GpuProtocol p : {GpuProtocol::ll, GpuProtocol::simple}) {
    for (const double bytes : {1e4, 64e6}) {
      const auto ring = plan_of(Collective::all_reduce, "ring", 512);
      const Simulated all = simulate(c, ring, options(bytes, p, 64));
      const Simulated one = simulate(c, ring, options(bytes, p));
      EXPECT_EQ(all.unit, 64);
      EXPECT_EQ(one.unit, 1);
      EXPECT_NEAR(one.us, all.us, 0.01 * all.us);
      const auto stages = plan_of(Collective::all_reduce, "hierarchical", 512, 8);
      const Simulated stages_one = simulate(c, stages, options(bytes, p));
      EXPECT_EQ(stages_one.unit, 1);
      EXPECT_NEAR(stages_one.us, simulate(c, stages, options(bytes, p, 64)).us,
                  0.01 * stages_one.us);
    }
  }
  // Also where ranks hinder each other: each sends to its next ones first.
  const auto crowd = plan_of(Collective::all_to_all, "direct", 512);
  const double crowd_all = simulate(c, crowd, options(1e5, GpuProtocol::simple, 64)).us;
  EXPECT_NEAR(simulate(c, crowd, options(1e5)).us, crowd_all, 0.01 * crowd_all);
  // Hosts of a tree differ, which is noticed.
  EXPECT_EQ(simulate(c, plan_of(Collective::all_reduce, "tree", 512), options(1e4)).unit, 64);
}

TEST(ClusterSimulation, OversubscribedLeavesSlowDownWhatCrossesThem) {
  NcclCall call;
  call.collective = Collective::all_to_all;
  call.bytes = 64e6;
  Prediction direct;
  direct.algorithm = find_algorithm(Collective::all_to_all, "direct");
  const auto us = [&](const char* network) {
    return simulate_nccl(cluster("8xH100", 8, network), call, direct, false).us;
  };
  // A GPU sends a megabyte to each of 56 others through its port, ...
  const double flat = us("ib 8x400G");
  EXPECT_NEAR(flat, 56e6 / (50e3 * 0.92), 0.06 * flat);
  EXPECT_NEAR(us("ib 8x400G leaf=2 oversubscription=1"), flat, 0.05 * flat);
  // ... and the 16 of a leaf to 48 each through a quarter of what their ports carry.
  const double narrow = us("ib 8x400G leaf=2 oversubscription=4");
  EXPECT_NEAR(narrow, 4 * 48e6 / (50e3 * 0.92), 0.06 * narrow);
}

TEST(ClusterSimulation, OfManyRanks) {
  // CLUSTER_HOSTS: of 8 GPUs each; 12500 are 100,000 ranks.
  const char* given = std::getenv("CLUSTER_HOSTS");
  const int hosts = given == nullptr ? 256 : std::atoi(given);
  const Cluster c = cluster("8xH100", hosts);
  for (const char* algorithm : {"ring", "tree", "hierarchical", "hierarchical_tree"}) {
    const std::clock_t start = std::clock();  // others may keep the cores busy
    NcclCall call;
    call.bytes = 1e9;
    Prediction p;
    p.algorithm = find_algorithm(Collective::all_reduce, algorithm);
    const Simulated s = simulate_nccl(c, call, p, false);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::printf("%s: %d ranks, %.0f us, in %.1f s of a core\n", algorithm, c.ranks(), s.us, took);
    EXPECT_GT(s.us, 1e9 / 400e3);
    EXPECT_LT(took, 60);
  }
}

TEST(Simulate, EndsWithTheLastMessage) {
  // Ends of flows that were foretold, at rates near 0 too, and that moved, are not the end.
  for (const char* host : {"4xGB200", "8xH100", "4xRTX4090"}) {
    const Cluster c = cluster(host, 2, "ib 4x400G");
    for (const char* algorithm : {"ring", "tree", "hierarchical_tree", "two_shot"}) {
      for (const int lanes : {1, 3, 16}) {
        std::vector<int> order(static_cast<std::size_t>(c.ranks_of_a_host()));
        std::iota(order.begin(), order.end(), 0);
        const Parts parts(c, *find_algorithm(Collective::all_reduce, algorithm),
                          std::vector<std::vector<int>>(static_cast<std::size_t>(lanes), order));
        for (const int tiles : {1, 4, 7}) {
          SimulateOptions o = options(1e6, GpuProtocol::ll);
          o.tiles = tiles;
          o.record = true;
          const Simulated s = simulate(
              c, [&](int rank) { return parts(rank); }, o);
          double last = 0;
          for (const Moved& m : s.record) last = std::max(last, m.end);
          EXPECT_GE(s.us, last);
          EXPECT_LE(s.us, last + 100)
              << host << " " << algorithm << " in " << lanes << " lanes, " << tiles << " tiles";
        }
      }
    }
  }
}

TEST(DrawRun, PicturesAreWellFormed) {
  const Cluster c = cluster("8xH100", 2);
  SimulateOptions o = options(1e6);
  o.record = true;
  const Simulated s = simulate(c, plan_of(Collective::all_reduce, "ring", 16), o);
  EXPECT_EQ(s.record.size(), 16U * 30);
  const std::string run = draw_run(s, "a < b & \"c\""), heat = draw_heat(s, "title");
  EXPECT_EQ(test::xml_error(run), "");
  EXPECT_EQ(test::xml_error(heat), "");
  EXPECT_EQ(test::count(run, "<title>"), s.record.size());
  EXPECT_GE(test::count(heat, "%</text>"), 16U);
}

}  // namespace
}  // namespace tutti::cluster

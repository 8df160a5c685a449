// What calls along an axis of a described cluster cost, and how often that is predicted.
#include <gtest/gtest.h>

#include "tools/cluster/cluster_setup.h"
#include "tools/estimate/estimate_cluster.h"

namespace tutti {
namespace {

TEST(ClusterCosts, ArePredictedOnceForRanksOfAHostAndOfTwo) {
  ClusterArguments a;
  a.machine = "2xH100";
  a.network = "ib 2x400G";
  a.hosts = 64;
  const ClusterSetup setup = set_up(a, nullptr);
  ClusterCosts costs(setup, constants_of(a));
  for (const int in_host : {1, 2}) {
    for (const int hosts : {1, 2, 4, 64}) {
      for (const int sharing : {1, 2}) {
        const auto cost = costs(Collective::all_gather, {in_host, hosts, sharing});
        EXPECT_GT(cost.gb_per_s, 1) << in_host << " " << hosts << " " << sharing;
      }
    }
  }
  EXPECT_EQ(costs.predictions(), 3U);  // 2 on 1, 1 on 2, 2 on 2; one rank alone needs none
  // Two groups share two ports of 50 GB/s; more hosts have the rate of two, and longer ways.
  const auto alone = costs(Collective::all_gather, {2, 2, 1});
  const auto shared = costs(Collective::all_gather, {2, 2, 4});
  const auto many = costs(Collective::all_gather, {2, 64, 1});
  EXPECT_LE(shared.gb_per_s, 100.0 / 4);
  EXPECT_GT(alone.gb_per_s, shared.gb_per_s);
  EXPECT_EQ(many.gb_per_s, alone.gb_per_s);
  EXPECT_GT(many.latency_us, 2 * alone.latency_us);
}

}  // namespace
}  // namespace tutti

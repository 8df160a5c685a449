// Predictions for clusters: which algorithm and protocol are the best, what links and ports carry
// in which order of ranks, and what copy engines do. Part of cluster_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "collectives/cluster/orders.h"
#include "core/error.h"
#include "laboratory/predict/evidence.h"
#include "laboratory/predict/nccl_model.h"
#include "tests/collectives/model/clusters.h"

namespace tutti::cluster {
namespace {

TEST(ClusterPrediction, FollowsTheMachine) {
  NcclCall call;
  call.bytes = 1 << 30;
  const Prediction h100 = predict_nccl(cluster("8xH100", 1), call).front();
  EXPECT_EQ(algorithm_of(h100), "switch");
  const Prediction a100 = predict_nccl(cluster("8xA100", 1), call).front();
  EXPECT_EQ(algorithm_of(a100), "ring");
  EXPECT_EQ(a100.protocol, GpuProtocol::simple);
  EXPECT_GT(a100.us(), 1.3 * h100.us());
  call.bytes = 8;
  EXPECT_EQ(predict_nccl(cluster("8xA100", 1), call).front().protocol, GpuProtocol::ll);
  // With SHARP hosts send half, so that NVLink is the limit.
  call.bytes = 1 << 30;
  call.algorithm = "switch";
  EXPECT_LT(predict_nccl(cluster("8xH100", 16, "ib 8x400G sharp"), call).front().us(),
            0.9 * predict_nccl(cluster("8xH100", 16), call).front().us());
  EXPECT_THROW(predict_nccl(cluster("8xA100", 1), call), Error);
  call.algorithm = "nonsense";
  EXPECT_THROW(predict_nccl(cluster("8xA100", 1), call), Error);
}

/// GB/s of rings that all carry the same, with each link's load counted again.
double carried(const Cluster& c, const Orders& orders) {
  std::vector<double> used(c.capacities().size());
  const auto pass = [&](const std::vector<int>& links) {
    for (const int l : links) used[static_cast<std::size_t>(l)] += 1;
  };
  for (const auto& order : orders) {
    std::vector<int> visited = order;
    std::ranges::sort(visited);
    EXPECT_EQ(visited, plain_order(c));
    for (std::size_t i = 1; i < order.size(); ++i) pass(c.inside(order[i - 1], order[i]).links);
    if (c.hosts() == 1) {
      pass(c.inside(order.back(), order.front()).links);
      continue;
    }
    const GpuRoute route = c.across(order.back(), order.front());
    pass(route.links);
    pass(route.far);
  }
  double most = 0;
  for (std::size_t l = 0; l < used.size(); ++l) most = std::max(most, used[l] / c.capacities()[l]);
  return static_cast<double>(orders.size()) / most;
}

TEST(ClusterOrders, CarryWhatLinksAndPortsDo) {
  // Seven rings use each link of the mesh once; eight paths, and each port.
  const Cluster mesh = cluster("8xMI300X", 1);
  EXPECT_EQ(mesh.orders().size(), 7U);
  EXPECT_NEAR(carried(mesh, mesh.orders()), 7 * 48, 1e-6);
  const Cluster meshes = cluster("8xMI300X", 4);
  EXPECT_EQ(meshes.orders().size(), 8U);
  EXPECT_NEAR(carried(meshes, meshes.orders()), 8 * 50 * 0.92, 1e-6);
  const Cluster switched = cluster("8xH100", 4);
  EXPECT_EQ(switched.orders(), turned(Orders(8, plain_order(switched))));
  EXPECT_EQ(cluster("8xH100", 1).orders(), Orders{plain_order(switched)});
  for (const char* host : {"8xMI250X", "8xV100", "6xMI300X", "5xMI210", "4xA100-PCIe nvlink",
                           "3xRTX4090", "1xH100", "16xH200NVL"}) {
    for (const int hosts : {1, 3}) {
      const Cluster c = cluster(host, hosts, "ib 4x200G");
      EXPECT_GE(carried(c, c.orders()),
                carried(c, turned(Orders(c.orders().size(), plain_order(c)))) * (1 - 1e-9))
          << host << " " << hosts;
      EXPECT_EQ(cluster(host, hosts, "ib 4x200G").orders(), c.orders());
    }
  }
}

/// Without what measured logs say beside it.
double predicted(const Cluster& c, Collective collective, double bytes, bool copy_engines) {
  NcclCall call;
  call.collective = collective;
  call.bytes = bytes;
  call.copy_engines = copy_engines;
  const Prediction p = predict_nccl(c, call).front();
  const CallKind kind = kind_of(c, collective, p);
  return p.us() / ramp(kind, measured_bytes(c, p, kind, bytes));
}

TEST(ClusterPrediction, LargerCallsTakeNoLess) {
  for (const auto& [host, hosts] : {std::pair{"8xH100", 1},
                                    {"8xA100", 4},
                                    {"1xH100", 3},
                                    {"8xMI300X", 2},
                                    {"4xRTX4090", 1},
                                    {"8xH100", 8}}) {
    const Cluster c = cluster(host, hosts);
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                        Collective::broadcast, Collective::all_to_all}) {
      double before = 0;
      NcclCall call;
      call.collective = collective;
      for (call.bytes = 1024; call.bytes < 1e8; call.bytes *= 2) {
        const double us = predict_nccl(c, call).front().us();
        EXPECT_GE(us, before * 0.999)
            << host << " " << hosts << " " << name(collective) << " " << call.bytes;
        before = us;
      }
    }
  }
}

TEST(ClusterPrediction, ALoopOfChainsTakesTwoOfItsMessages) {
  // The next call begins while those behind still do this one: 8 GeForce, each message 4.3 us.
  EXPECT_NEAR(predicted(cluster("8xRTX4090", 1), Collective::broadcast, 64, false), 6.6 + 2 * 4.3,
              0.1);
  EXPECT_NEAR(predicted(cluster("2xRTX4090", 1), Collective::reduce, 64, false), 6.6 + 4.3, 0.1);
}

TEST(ClusterPrediction, EachPeerOfOtherHostsIsAMessageOfTheNetwork) {
  NcclCall call;
  call.collective = Collective::all_to_all;
  call.bytes = 1024;
  const Cluster c = cluster("8xH100", 4);
  const double us = predict_nccl(c, call).front().us();
  call.nccl.net_peer = 2.1;
  const double more = predict_nccl(c, call).front().us() - us;
  EXPECT_NEAR(more, 24, 24 * 0.1);
}

TEST(ClusterPrediction, LatenciesAreOfTheGeneration) {
  const GpuConstants known;
  const auto call_of = [&](const char* host) {
    return of_generation(known, {}, machine(host)).call_ll / known.call_ll;
  };
  EXPECT_DOUBLE_EQ(call_of("8xA100"), 1);
  EXPECT_DOUBLE_EQ(call_of("8xH100"), 1.1);
  EXPECT_DOUBLE_EQ(call_of("8xB200"), 1.6);
  EXPECT_DOUBLE_EQ(call_of("8xMI300X"), 1);
  NcclConstants nccl;
  EXPECT_TRUE(override_constant(nccl, "net_peer=3"));
  EXPECT_EQ(nccl.net_peer, 3);
  EXPECT_FALSE(override_constant(nccl, "staging=3"));
  EXPECT_THROW(override_constant(nccl, "net_peer=x"), Error);
  EXPECT_THROW(override_constant(nccl, "net_peer=-1"), Error);
}

TEST(ClusterPrediction, LongChainsFillTheirLinks) {
  // Down a chain each GPU passes on what it gets: of a long message, at the rate of its links,
  // 370 GB/s within a host and by its ports, however many hosts there are.
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    for (const int hosts : {1, 2, 8}) {
      const Cluster c = cluster("8xH100", hosts);
      double before = 0;
      for (double bytes = 1 << 20; bytes < 8e9; bytes *= 4) {
        const double us = predicted(c, collective, bytes, false);
        EXPECT_GT(us, before) << hosts << " hosts, " << bytes;
        EXPECT_LT(bytes / us / 1000, 371) << hosts << " hosts, " << bytes;
        before = us;
      }
      EXPECT_GT(4294967296.0 / before / 1000, 340) << hosts << " hosts";
    }
  }
}

TEST(ClusterPrediction, PortsAreReachedByPci) {
  // Whatever comes by a port goes over the GPU's PCI link, as what neighbours send does, and
  // without peer access through memory of the host: several hosts are no faster than one.
  for (const char* host : {"5xL40S", "4xA10", "7xRTX4090"}) {
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
      const double one = predicted(cluster(host, 1), collective, 1e9, false);
      const double two = predicted(cluster(host, 2), collective, 1e9, false);
      EXPECT_GT(two, 0.99 * one) << host;
      // Hosts that stand for all are as good as all of them.
      EXPECT_NEAR(predicted(cluster(host, 3), collective, 1e9, false) / two, 1, 0.1) << host;
    }
  }
}

TEST(ClusterPrediction, OfSomeGpusUsesAllTheirLinks) {
  // Of a full mesh of eight, four have three links each to the others: three rings.
  const Cluster four{machine("8xMI300X"), 1, topology::parse_network("ib"), GpuConstants{}, 4};
  const double us = predicted(four, Collective::all_gather, 1e9, false);
  EXPECT_NEAR(1e9 * 3 / 4 / us / 1000, 3 * 48, 3 * 48 * 0.1);
}

TEST(ClusterPrediction, Ll128IsWhereItIsUsedUnasked) {
  for (const char* host : {"8xH100", "8xV100-SXM2", "2xMI250X", "2xA100-PCIe nvlink"}) {
    EXPECT_TRUE(cluster(host, 1).possible(GpuProtocol::ll128)) << host;
  }
  for (const char* host : {"8xMI300X", "4xMI100", "2xRTX4090", "2xA100-PCIe"}) {
    EXPECT_FALSE(cluster(host, 1).possible(GpuProtocol::ll128)) << host;
  }
}

TEST(ClusterPrediction, OfShortTreesIsWhatNcclSays) {
  // Chains of seven hops on NVLink up and down, and a tree's message between hosts each way.
  const double us = predicted(cluster("8xH100", 2), Collective::all_reduce, 8, false);
  EXPECT_NEAR(us, 6.6 + 2 * (7 * 0.6 + 5.0), 0.75);
}

TEST(ClusterPrediction, OfCopyEngines) {
  constexpr double kShort = 1024, kLong = 1e9;
  const Cluster mesh = cluster("8xMI300X", 1);
  // What is known of short ones, and what the seven links of a GPU carry.
  EXPECT_NEAR(predicted(mesh, Collective::all_gather, kShort, true) /
                  predicted(mesh, Collective::all_gather, kShort, false),
              4.5, 0.1);
  EXPECT_NEAR(predicted(mesh, Collective::all_gather, kLong, true), kLong / 8 / 48e3,
              0.03 * kLong / 8 / 48e3);
  EXPECT_LT(predicted(mesh, Collective::all_gather, kLong, true),
            predicted(mesh, Collective::all_gather, kLong, false));
  // All peers at once, by kernels, too.
  for (const bool engines : {false, true}) {
    for (const Collective c : {Collective::all_to_all, Collective::scatter, Collective::gather}) {
      EXPECT_NEAR(predicted(mesh, c, kLong, engines), kLong / 8 / 48e3, 0.03 * kLong / 8 / 48e3)
          << name(c);
    }
  }
  const auto refused = [](const Cluster& c, Collective collective, const std::string& why) {
    try {
      predicted(c, collective, kShort, true);
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused(mesh, Collective::all_reduce, "do not do all_reduce");
  refused(cluster("8xH100", 2), Collective::all_gather, "no other hosts");
  refused(cluster("4xRTX4090", 1), Collective::all_gather, "peer access");
}

TEST(ClusterPrediction, ConstantsCanBeOverridden) {
  GpuConstants constants;
  override_constant(constants, "staging=10");
  EXPECT_EQ(constants.staging, 10);
  for (const char* bad : {"staging", "staging=", "staging=-1", "staging=x", "nothing=1", ""}) {
    EXPECT_THROW(override_constant(constants, bad), Error) << bad;
  }
  topology::Network network = topology::parse_network("roce");
  topology::override_kind(network, "efa.latency=3");
  EXPECT_EQ(network.latency, 12);
  topology::override_kind(network, "roce.latency=3");
  EXPECT_EQ(network.latency, 3);
  EXPECT_THROW(topology::override_kind(network, "roce.ports=3"), Error);
  for (const Constant<GpuConstants>& line : gpu_constants()) {
    EXPECT_FALSE(line.meaning.empty()) << line.name;
    EXPECT_GT(GpuConstants{}.*line.value, 0) << line.name;
  }
}

}  // namespace
}  // namespace tutti::cluster

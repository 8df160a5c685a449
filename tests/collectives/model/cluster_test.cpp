// Simulations of plans on clusters: shares of links, times that can be worked out by hand, hosts
// that stand for all others, and what texts describe.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <numeric>

#include "collectives/algorithms.h"
#include "collectives/cluster/parts.h"
#include "collectives/draw/run.h"
#include "collectives/model/fair_share.h"
#include "core/error.h"
#include "tests/support/xml.h"
#include "tools/nccl_model.h"
#include "topology/describe.h"
#include "topology/discover.h"

namespace tutti::cluster {
namespace {

topology::Graph machine(const std::string& text) {
  const topology::Described d = topology::parse_machine(text);
  topology::Records r =
      topology::records_of(topology::machine_xml(*d.model, d.count, 0, 0, d.bridged), text);
  return topology::graph_of(r);
}

Cluster cluster(const std::string& host, int hosts, const std::string& network = "ib 8x400G",
                const GpuConstants& constants = {}) {
  return {machine(host), hosts, topology::parse_network(network), constants};
}

SimulateOptions options(double bytes, GpuProtocol p = GpuProtocol::simple, int unit = 0) {
  SimulateOptions o;
  o.block_bytes = bytes;
  o.protocol = p;
  o.unit = unit;
  return o;
}

PartOf plan_of(Collective c, const char* algorithm, int ranks, int group = 0) {
  PlanRequest request;
  request.collective = c;
  request.ranks = ranks;
  request.group = group;
  return [=, a = find_algorithm(c, algorithm)](int rank) { return a->generate(request, rank); };
}

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

double predicted(const Cluster& c, Collective collective, double bytes, bool copy_engines) {
  NcclCall call;
  call.collective = collective;
  call.bytes = bytes;
  call.copy_engines = copy_engines;
  return predict_nccl(c, call).front().us();
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

TEST(Describe, Networks) {
  const topology::Network n =
      topology::parse_network("8x400G, leaf=32 oversubscription=2 latency=5us sharp roce");
  EXPECT_EQ(n.kind, "roce");
  EXPECT_EQ(n.latency, 5);
  EXPECT_EQ(n.ports, 8);
  EXPECT_EQ(n.rate, 400);
  EXPECT_EQ(n.leaf, 32);
  EXPECT_EQ(n.oversubscription, 2);
  EXPECT_TRUE(n.sums);
  EXPECT_EQ(topology::parse_network("a3mega").kind, "tcpxo");
  EXPECT_EQ(topology::parse_network("").kind, "ib");
  for (const char* bad : {"token", "8x", "0x400G", "-400G", "8x-400G", "99999x1G", "leaf=-1",
                          "leaf=", "efficiency=2", "400Gx8", "latency=infus", "latency=nan"}) {
    EXPECT_THROW(topology::parse_network(bad), Error) << bad;
  }
}

TEST(Describe, Gpus) {
  const auto name = [](const char* text) {
    const topology::GpuModel* m = topology::find_gpu_model(text);
    return m == nullptr ? std::string() : std::string(m->name);
  };
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "H100 SXM5");
  EXPECT_EQ(name("H200"), "H200 SXM");
  EXPECT_EQ(name("NVIDIA B200"), "B200");
  EXPECT_EQ(name("GB300"), "GB300");
  EXPECT_EQ(name("A100-SXM4-40GB"), "A100 SXM4 40GB");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "A100 PCIe 80GB");
  EXPECT_EQ(name("A10G"), "A10G");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(name("RTX4090"), "RTX 4090");
  EXPECT_EQ(name("L40S"), "L40S");
  EXPECT_EQ(name("L20"), "L20");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB"), "V100 SXM2 32GB");
  EXPECT_EQ(name("RTX A6000"), "RTX A6000");
  EXPECT_EQ(name("Tesla K80"), "K80");
  EXPECT_EQ(name("MI300X"), "MI300X");
  EXPECT_EQ(name("MI250X"), "MI250X/MI250");
  EXPECT_EQ(name("NVIDIA A800-SXM4-80GB"), "A800 SXM4 80GB");
  EXPECT_EQ(name("H800"), "H800 SXM");
  EXPECT_EQ(name("NVIDIA H20-3e"), "H20");
  EXPECT_EQ(name("H200NVL"), "H200 NVL");
  EXPECT_EQ(name("NVIDIA H100 NVL"), "H100 NVL");
  EXPECT_EQ(name("RTX4090D"), "RTX 4090D");
  EXPECT_EQ(name("RTX2080Ti"), "RTX 2080 Ti");
  EXPECT_EQ(name("RTX 3090 Ti"), "RTX 3090 Ti");
  EXPECT_EQ(name("RTX 3090"), "RTX 3090");
  EXPECT_EQ(name("NVIDIA RTX 6000 Ada Generation"), "RTX 6000 Ada");
  EXPECT_EQ(name("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX PRO 6000");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090 D"), "RTX 4090D");
  EXPECT_EQ(name("Quadro RTX 6000"), "Quadro RTX 6000");
  EXPECT_EQ(name("RTX6000Ada"), "RTX 6000 Ada");
  EXPECT_EQ(name("RTXPRO6000"), "RTX PRO 6000");
  EXPECT_EQ(name("NVIDIA RTX PRO 5000 Blackwell"), "");
  EXPECT_EQ(name("NVIDIA RTX 5000 Ada Generation"), "RTX 5000 Ada");
  EXPECT_EQ(name("NVIDIA GeForce RTX 2080"), "");
  EXPECT_EQ(name("NVIDIA GeForce GTX 1080 Ti"), "GTX 1080 Ti");
  EXPECT_EQ(name("GeForce GTX 1080"), "GTX 1080");
  EXPECT_EQ(name("NVIDIA A800 80GB PCIe"), "A800 PCIe 80GB");
  EXPECT_EQ(name("NVIDIA H800 PCIe"), "H800 PCIe");
  EXPECT_EQ(name("Tesla V100S-PCIE-32GB"), "V100S PCIe 32GB");
  EXPECT_EQ(name("Tesla P40"), "P40");
  EXPECT_EQ(name("DGXA100"), "A100 SXM4 40GB");
  EXPECT_EQ(name("A10080GB"), "A100 SXM4 80GB");
  EXPECT_EQ(name("AMD Instinct MI60"), "MI50/MI60");
  EXPECT_EQ(name("AMD Instinct MI250"), "MI250X/MI250");
  EXPECT_EQ(name("MI300"), "MI300X");
  EXPECT_EQ(name("AMD Instinct MI325 OAM"), "MI325X");
  EXPECT_EQ(name("AMD Instinct MI355 OAM"), "MI355X");
  EXPECT_EQ(name("AMD Instinct MI300A"), "MI300A");
  EXPECT_EQ(name("nothing"), "");
  for (const char* bad : {"", "x", "8", "8x", "0xH100", "-1xH100", "2000xH100", "8xnothing",
                          "8xH100 what", "8000000000000000000000xH100"}) {
    EXPECT_THROW(topology::parse_machine(bad), Error) << bad;
  }
  // Each model makes a machine without doubts, and is predicted.
  for (const topology::GpuModel& m : topology::gpu_models()) {
    if (m.device == 0) continue;
    topology::Records r = topology::records_of(topology::machine_xml(m, 4, 4, 200, true), "x");
    const topology::Graph g = topology::graph_of(r);
    EXPECT_TRUE(g.doubts.empty()) << m.name << ": " << g.doubts.front().what;
    EXPECT_EQ(g.gpus().size(), 4U) << m.name;
    NcclCall call;
    call.bytes = 1 << 20;
    EXPECT_GT(predict_nccl(Cluster(g, 2, topology::parse_network("ib"), {}), call).front().us(), 1)
        << m.name;
  }
}

/// What GPU 0 has to each of the others, in GPU links.
std::vector<int> links_of(const std::string& text, int gpu) {
  const topology::Graph g = machine(text);
  std::vector<int> lanes;
  for (const int other : g.gpus()) {
    int count = 0;
    for (const int l : g.out(g.gpus()[static_cast<std::size_t>(gpu)])) {
      const topology::Link& link = g.link(l);
      if (link.to == other) count += link.lanes;
    }
    lanes.push_back(count);
  }
  return lanes;
}

TEST(Describe, MachinesAreWiredAsTheyAre) {
  using V = std::vector<int>;
  EXPECT_EQ(links_of("8xV100-SXM2", 0), (V{0, 1, 1, 2, 2, 0, 0, 0}));
  EXPECT_EQ(links_of("8xV100-SXM2", 5), (V{0, 2, 0, 0, 1, 0, 2, 1}));
  EXPECT_EQ(links_of("8xP100-SXM2", 3), (V{1, 1, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(links_of("4xV100-SXM2", 1), (V{2, 0, 2, 2}));
  EXPECT_EQ(links_of("8xMI250X", 0), (V{0, 4, 1, 0, 0, 0, 2, 0}));
  EXPECT_EQ(links_of("16xMI250X", 9), (V{0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(links_of("8xMI210", 5), (V{0, 0, 0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(links_of("4xMI50", 0), (V{0, 1, 0, 1}));
  EXPECT_EQ(links_of("4xMI300A", 2), (V{2, 2, 0, 2}));
  EXPECT_EQ(links_of("8xMI300X", 7), (V{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(links_of("8xH200-NVL", 6), (V{0, 0, 0, 0, 6, 6, 0, 6}));
  EXPECT_EQ(links_of("4xH100-NVL", 2), (V{0, 0, 0, 12}));
  EXPECT_EQ(links_of("4xA100-PCIe nvlink", 0), (V{0, 12, 0, 0}));
  EXPECT_EQ(links_of("4xA100-PCIe", 0), (V{0, 0, 0, 0}));
  // Through a switch: no two are joined. Nobody has more links than the model.
  EXPECT_EQ(links_of("8xH800", 0), V(8));
  for (const topology::GpuModel& m : topology::gpu_models()) {
    if (m.device == 0) continue;
    for (const int count : {2, 3, 4, 5, 8, 16}) {
      topology::Records r = topology::records_of(topology::machine_xml(m, count, 0, 0, true), "x");
      const topology::Graph g = topology::graph_of(r);
      EXPECT_TRUE(g.doubts.empty()) << count << " " << m.name << ": " << g.doubts.front().what;
      for (const int gpu : g.gpus()) {
        int links = 0;
        for (const int l : g.out(gpu)) {
          const auto kind = g.link(l).kind;
          const bool own = kind == topology::LinkKind::nvlink || kind == topology::LinkKind::xgmi;
          links += own ? g.link(l).lanes : 0;
        }
        EXPECT_LE(links, m.links) << count << " " << m.name;
      }
    }
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

// Ranks by what their hosts' graphs say: the order of those with GPUs, lane by lane, the ports that
// are near to each, and communicators that go by both, with threads in the GPUs' place.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/device/queued_gpus.h"
#include "tests/support/clean_environment.h"
#include "tests/support/temporary_folder.h"
#include "tests/topology/topology_samples.h"
#include "topology/describe.h"
#include "topology/discover.h"
#include "topology/place.h"

namespace tutti::test {
namespace {

using topology::Graph;

Graph graph_of_text(const std::string& text) {
  topology::Records r = topology::records_of(text, "sample");
  return topology::graph_of(r);
}
Graph machine(const std::string& text) {
  const topology::Described d = topology::parse_machine(text);
  return graph_of_text(topology::machine_xml(*d.model, d.count, 4, 200, d.bridged));
}

/// As ranks with these GPUs (by number) see it, `each` of them on a host.
std::vector<GpuPlace> places(const Graph& graph, const std::vector<int>& gpus) {
  std::vector<GpuPlace> all;
  for (const int gpu : gpus) all.push_back(gpu_place(graph, topology::gpu_node(graph, "", gpu)));
  return all;
}
Domains hosts_of(int hosts, int each) {
  std::vector<int> host;
  for (int r = 0; r < hosts * each; ++r) host.push_back(r / each);
  return hosts == 1 ? Domains() : Domains(host);
}
std::vector<int> order_of(const Domains& layout, int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  if (layout.ranks() > 0) {
    for (int p = 0; p < ranks; ++p) order[static_cast<std::size_t>(p)] = layout.rank_at(p);
  }
  return order;
}

TEST(Places, LanesFillAMesh) {
  const Graph g = graph_of_text(kMesh);
  // Ranks in another order than their GPUs.
  const std::vector<int> gpu_of{2, 0, 3, 1};
  const auto layouts = gpu_layouts(places(g, gpu_of), Domains());
  // Six orders with 40 GB/s each; with equal shares they carry as much as all links.
  ASSERT_EQ(layouts.size(), 6U);
  std::vector<std::vector<int>> rings;
  std::set<std::vector<int>> different;
  for (const Domains& d : layouts) {
    auto& ring = rings.emplace_back();
    for (const int r : order_of(d, 4)) {
      ring.push_back(topology::gpu_node(g, "", gpu_of[static_cast<std::size_t>(r)]));
    }
    different.insert(ring);
    std::vector<int> sorted = ring;
    std::ranges::sort(sorted);
    std::vector<int> gpus = g.gpus();
    std::ranges::sort(gpus);
    EXPECT_EQ(sorted, gpus);
  }
  EXPECT_EQ(different.size(), 6U);
  EXPECT_NEAR(ring_bandwidth(g, rings, {}), 240, 1e-6);
}

TEST(Places, OfOtherHostsGoOutByAllPorts) {
  const Graph g = machine("8xH100");
  const std::vector<int> gpus{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
  const auto layouts = gpu_layouts(places(g, gpus), hosts_of(2, 8));
  ASSERT_EQ(layouts.size(), 8U);
  std::set<int> first, second;
  for (const Domains& d : layouts) {
    const auto order = order_of(d, 16);
    for (int i = 0; i < 8; ++i) EXPECT_LT(order[static_cast<std::size_t>(i)], 8);
    first.insert(order[7]);  // goes to the other host
    second.insert(order[15]);
  }
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(second.size(), 8U);
  // On one host the switch makes all orders alike: plans stay as they are.
  EXPECT_TRUE(gpu_layouts(places(g, {0, 1, 2, 3}), Domains()).empty());
}

TEST(Places, GpusOfANumaDomainAreTogether) {
  const Graph g = machine("4xL40S");
  // Even and odd numbers on the two processors, by the ranks' choice of GPUs.
  const auto layouts = gpu_layouts(places(g, {0, 2, 1, 3}), Domains());
  ASSERT_FALSE(layouts.empty());
  const auto order = order_of(layouts.front(), 4);
  const std::set<int> together{order[0], order[1]};
  EXPECT_TRUE(together == (std::set{0, 2}) || together == (std::set{1, 3}));
  EXPECT_EQ(layouts.front().group(), 2);
}

TEST(Places, NobodyKnows) {
  const Graph g = graph_of_text(kMesh);
  EXPECT_EQ(topology::gpu_node(g, "", 9), -1);
  EXPECT_EQ(topology::gpu_node(g, "0002:04:00.0", 0), -1);
  EXPECT_EQ(g.node(topology::gpu_node(g, "10000:05:00.0", 0)).name, "gpu3");
  EXPECT_LT(gpu_place(g, -1).domain, 0);
  // One rank without a place: then all are as on cores.
  EXPECT_TRUE(gpu_layouts(places(g, {2, 0, 9, 1}), Domains()).empty());
}

TEST(Places, NearPorts) {
  const Graph g = graph_of_text(kMesh);
  const auto names = [&](int node) {
    std::vector<std::string> all;
    for (const int p : topology::near_ports(g, node)) all.push_back(g.node(p).name);
    return all;
  };
  for (const int gpu : {0, 1}) {
    EXPECT_EQ(names(topology::gpu_node(g, "", gpu)), std::vector<std::string>{"mlx5_0"});
  }
  EXPECT_EQ(names(topology::gpu_node(g, "", 3)), std::vector<std::string>{"mlx5_1"});
  // The masks: cores 0 to 15 are domain 0, 16 to 31 domain 1.
  EXPECT_EQ(names(topology::cores_node(g, CoreSet(0x0ff0))), std::vector<std::string>{"mlx5_1"});
  EXPECT_EQ(names(topology::cores_node(g, CoreSet(1U << 20U))), std::vector<std::string>{"mlx5_0"});
  EXPECT_EQ(topology::cores_node(g, CoreSet(0x18000)), -1);
  EXPECT_EQ(topology::cores_node(g, CoreSet()), -1);
  EXPECT_TRUE(names(-1).empty());
}

class PlacedRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) gpus.push_back(std::make_shared<QueuedDevice>(i));
    std::ofstream(file_) << kMesh;
  }
  void TearDown() override { gpus.clear(); }

  static std::vector<Communicator> ranks(const std::vector<int>& gpu_of, const char* algorithm) {
    Options options;
    options.algorithm = algorithm;
    std::vector<Options> each(gpu_of.size(), options);
    for (std::size_t r = 0; r < each.size(); ++r) each[r].gpu = gpu_of[r];
    std::vector<Communicator> all = Communicator::create_local(each);
    for (Communicator& c : all) c.impl().gpus = queued_gpus();
    return all;
  }
  static const RankPlan& plan_of(Communicator& c, Collective collective, Plans::Where where) {
    Signature call;
    call.collective = collective;
    call.count = kCount;
    return c.impl().plans.get(call, 4 * kCount, Access::none, where).plan;
  }

  TemporaryFolder folder_;
  std::string file_ = folder_.path() + "/mesh.xml";
};

/// The rank that each rank sends to in a lane.
std::vector<int> successors(std::vector<Communicator>& all, std::size_t lane) {
  std::vector<int> next;
  for (Communicator& c : all) {
    Signature call;
    call.collective = Collective::all_gather;
    call.count = kCount;
    const RankPlan& plan =
        c.impl().plans.get(call, 4 * kCount, Access::none, Plans::Where::gpu).plan;
    for (const Step& step : plan.lanes.at(lane)) {
      for (const Operand& o : plan.destinations(step)) {
        if (o.is_link() && (next.empty() || next.size() <= static_cast<std::size_t>(c.rank()))) {
          next.push_back(o.rank);
        }
      }
    }
  }
  return next;
}

TEST_F(PlacedRanks, FollowTheGraphOnGpusAlone) {
  const Environment environment({{"TUTTI_TOPO_FILE", file_}});
  const std::vector<int> gpu_of{2, 0, 3, 1};
  auto all = ranks(gpu_of, "ring");
  const RankPlan& on_gpu = plan_of(all[0], Collective::all_gather, Plans::Where::gpu);
  const RankPlan& on_host = plan_of(all[0], Collective::all_gather, Plans::Where::host);
  EXPECT_EQ(on_gpu.lanes.size(), 6 * on_host.lanes.size());
  std::set<std::vector<int>> rings;
  for (std::size_t l = 0; l < on_gpu.lanes.size(); ++l) rings.insert(successors(all, l));
  EXPECT_EQ(rings.size(), 6U);
  for (const auto& ring : rings) {
    ASSERT_EQ(ring.size(), 4U);
    int at = 0, steps = 0;
    do {
      at = ring[static_cast<std::size_t>(at)];
      ++steps;
    } while (at != 0 && steps < 9);
    EXPECT_EQ(steps, 4);
  }
}

TEST_F(PlacedRanks, CallsAreRight) {
  const std::vector<int> gpu_of{2, 0, 3, 1};
  const auto stream = [](std::size_t r) { return reinterpret_cast<void*>(0x1000 + 16 * r); };
  for (const std::string& setting : {file_, std::string("off"), std::string()}) {
    const Environment environment({{"TUTTI_TOPO_FILE", setting}});
    for (const char* algorithm : {"ring", "hierarchical", "chain", ""}) {
      if (setting != file_ && *algorithm != 0) continue;
      auto all = ranks(gpu_of, algorithm);
      std::vector<Buffer> in, sums, gathered, sent;
      Data everything;
      for (std::size_t r = 0; r < all.size(); ++r) {
        const Data data = input_of(static_cast<int>(r));
        in.emplace_back(gpu_of[r], data);
        sums.emplace_back(gpu_of[r], kCount);
        gathered.emplace_back(gpu_of[r], kCount * all.size());
        sent.emplace_back(gpu_of[r], kCount);
        everything.insert(everything.end(), data.begin(), data.end());
      }
      group([&] {
        for (std::size_t r = 0; r < all.size(); ++r) {
          all[r].run(call_on(Collective::all_reduce, in[r], sums[r], kCount), stream(r));
          all[r].run(call_on(Collective::all_gather, in[r], gathered[r], kCount), stream(r));
          Call call = call_on(Collective::broadcast, in[r], sent[r], kCount);
          call.root = 2;
          all[r].run(call, stream(r));
        }
      });
      wait_for_all();
      for (std::size_t r = 0; r < all.size(); ++r) {
        EXPECT_EQ(sums[r].read(), sum_of(4)) << setting << " " << algorithm;
        EXPECT_EQ(gathered[r].read(), everything) << setting << " " << algorithm;
        EXPECT_EQ(sent[r].read(), input_of(2)) << setting << " " << algorithm;
      }
    }
  }
}

TEST_F(PlacedRanks, WhatIsNoTopologyIsAnError) {
  std::ofstream(file_) << "<nothing/>";
  const Environment environment({{"TUTTI_TOPO_FILE", file_}});
  try {
    ranks({0, 1}, "");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(file_), std::string::npos) << e.what();
  }
  // Ranks on cores do not look at it.
  EXPECT_EQ(ranks({-1, -1}, "").size(), 2U);
}

}  // namespace
}  // namespace tutti::test

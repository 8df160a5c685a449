// Rings and trees on topologies: that they visit all GPUs, load no link beyond what it carries, and
// reach what is known of real machines (tests/topology/topology_data.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "collectives/algorithms.h"
#include "collectives/model/domains.h"
#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/support/nccl_graphs.h"
#include "tests/topology/topology_data.h"
#include "tests/topology/topology_samples.h"
#include "topology/describe.h"
#include "topology/discover.h"
#include "topology/nics.h"
#include "topology/source.h"

namespace tutti {
namespace {

using namespace tutti::test;
using topology::Graph;

Graph graph_of_text(const std::string& text) {
  topology::Records r = topology::records_of(text, "sample");
  return topology::graph_of(r);
}

Graph graph_of_file(const std::string& start) {
  for (const std::string& f : topology_files("nccl-xml")) {
    if (!std::filesystem::path(f).filename().string().starts_with(start)) continue;
    topology::Records r = topology::read_records(f);
    return topology::graph_of(r);
  }
  ADD_FAILURE() << "no " << start;
  return {};
}

LanesRequest of(LanesRequest::Shape shape, bool several = false, bool cross = false) {
  LanesRequest r;
  r.shape = shape;
  r.several_hosts = several;
  r.cross_rails = cross;
  return r;
}
constexpr auto kRing = LanesRequest::Shape::ring;
constexpr auto kTree = LanesRequest::Shape::tree;

/// Counts again what each lane puts on each link, by paths alone.
void expect_right(const Graph& g, const Lanes& found, const LanesRequest& request) {
  std::vector<int> all = g.gpus();
  std::ranges::sort(all);
  std::vector<double> used(g.links().size());
  double sum = 0;
  const auto put = [&](int a, int b, double amount) {
    const topology::Path p = g.path(a, b);
    ASSERT_NE(p.near, topology::Near::apart);
    for (const int l : p.links) used[static_cast<std::size_t>(l)] += amount;
  };
  for (const LaneOrder& lane : found.lanes) {
    std::vector<int> visited = lane.gpus;
    std::ranges::sort(visited);
    EXPECT_EQ(visited, all);
    EXPECT_GT(lane.bandwidth, 0);
    sum += lane.bandwidth;
    const std::size_t n = lane.gpus.size();
    if (request.shape == kTree) {
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(lane.parents[i] < 0, i == 0);
        if (i == 0) continue;
        ASSERT_LT(lane.parents[i], static_cast<int>(i));
        const int parent = lane.gpus[static_cast<std::size_t>(lane.parents[i])];
        put(lane.gpus[i], parent, lane.bandwidth);
        put(parent, lane.gpus[i], lane.bandwidth);
      }
      continue;
    }
    for (std::size_t i = 1; i < n; ++i) put(lane.gpus[i - 1], lane.gpus[i], lane.bandwidth);
    if (request.several_hosts) {
      if (!request.cross_rails) {
        EXPECT_EQ(lane.port_in, lane.port_out);
      }
      put(lane.port_in, lane.gpus.front(), lane.bandwidth);
      put(lane.gpus.back(), lane.port_out, lane.bandwidth);
    } else if (n > 1) {
      put(lane.gpus.back(), lane.gpus.front(), lane.bandwidth);
    }
  }
  EXPECT_NEAR(sum, found.bandwidth, 1e-6);
  for (std::size_t l = 0; l < used.size(); ++l) {
    const topology::Link& link = g.link(static_cast<int>(l));
    if (link.kind != topology::LinkKind::inside) {
      EXPECT_LE(used[l], link.bandwidth * (1 + 1e-6))
          << g.node(link.from).name << " -> " << g.node(link.to).name;
    }
  }
}

Lanes checked(const Graph& g, const LanesRequest& request) {
  const Lanes found = find_lanes(g, 0, request);
  expect_right(g, found, request);
  const Lanes again = find_lanes(g, 0, request);
  EXPECT_EQ(again.lanes.size(), found.lanes.size());
  for (std::size_t i = 0; i < std::min(again.lanes.size(), found.lanes.size()); ++i) {
    EXPECT_EQ(again.lanes[i].gpus, found.lanes[i].gpus);
    EXPECT_EQ(again.lanes[i].bandwidth, found.lanes[i].bandwidth);
  }
  return found;
}

TEST(Rings, FillAMesh) {
  const Graph g = graph_of_text(kMesh);
  const Lanes rings = checked(g, of(kRing));
  EXPECT_NEAR(rings.bandwidth, 240, 1e-6);
  EXPECT_TRUE(rings.best);
  const Lanes trees = checked(g, of(kTree));
  EXPECT_GE(trees.bandwidth, 150);
  // By the ports: one each side, 24 GB/s of PCI each.
  const Lanes out = checked(g, of(kRing, true));
  EXPECT_NEAR(out.bandwidth, 48, 1e-6);
  checked(g, of(kRing, true, true));
}

/// Of equal shares, and no link carries more than it can.
Lanes checked_equal(const Graph& g, LanesRequest request, int most) {
  request.most_lanes = most;
  const Lanes found = find_equal_rings(g, 0, request);
  expect_right(g, found, request);
  EXPECT_LE(found.lanes.size(), static_cast<std::size_t>(most));
  for (const LaneOrder& lane : found.lanes) {
    EXPECT_EQ(lane.bandwidth, found.lanes.front().bandwidth);
  }
  EXPECT_LE(found.bandwidth, found.at_most * (1 + 1e-6));
  return found;
}

TEST(EqualRings, FillAMesh) {
  // Each link in one lane of seven: a Hamiltonian decomposition.
  const topology::Described d = topology::parse_machine("8xMI300X");
  topology::Records r =
      topology::records_of(topology::machine_xml(*d.model, d.count, 0, 0, d.bridged), "described");
  const Graph g = topology::graph_of(r);
  const Lanes seven = checked_equal(g, of(kRing), 16);
  EXPECT_EQ(seven.lanes.size(), 7u);
  EXPECT_NEAR(seven.bandwidth, 7 * 48, 1e-6);
  EXPECT_EQ(seven.full.size(), 56u);
  EXPECT_TRUE(seven.best);
  EXPECT_NEAR(seven.at_most, 7 * 48, 1e-4);
  // Fewer rings carry as much as they can: a link each, and a second time.
  EXPECT_NEAR(checked_equal(g, of(kRing), 3).bandwidth, 3 * 48, 1e-6);
  EXPECT_NEAR(checked_equal(graph_of_text(kMesh), of(kRing), 8).bandwidth, 240, 1e-6);
  EXPECT_EQ(checked_equal(graph_of_text(kSwitched), of(kRing), 8).lanes.size(), 1u);
}

TEST(Rings, OnASwitchAreOne) {
  const Graph g = graph_of_text(kSwitched);
  const Lanes rings = checked(g, of(kRing));
  EXPECT_NEAR(rings.bandwidth, 18 * 20.6, 1e-6);
  ASSERT_EQ(rings.lanes.size(), 1u);
  EXPECT_EQ(rings.lanes[0].gpus, g.gpus());
  EXPECT_FALSE(rings.full.empty());
  // Over NVLink, also where C2C and a processor would be a wider way.
  for (const int a : g.gpus()) {
    for (const int b : g.gpus()) {
      if (a != b) {
        EXPECT_EQ(g.path(a, b).near, topology::Near::gpu_links);
      }
    }
  }
}

TEST(Rings, OfNoGpusAreRefused) {
  EXPECT_THROW(
      find_lanes(graph_of_text("<system version=\"1\"><cpu numaid=\"0\"/></system>"), 0, {}),
      Error);
  EXPECT_THROW(find_lanes(graph_of_text(kAmd), 0, of(kRing, true)), Error);
}

/// Plans for a graph: each order that is found, and lanes with different orders, are proved.
void expect_proved(const Graph& g) {
  LanesRequest few = of(kRing);
  few.most_lanes = 6;
  const std::vector<int> gpus = g.gpus();
  const auto n = static_cast<int>(gpus.size());
  const auto orders = orders_of(find_equal_rings(g, 0, few), gpus);
  const Domains domains = domains_of(g, gpus);
  for (const Collective c : {Collective::all_reduce, Collective::all_gather,
                             Collective::reduce_scatter, Collective::broadcast}) {
    for (const Algorithm& a : algorithms()) {
      if (a.collective != c || a.windows) continue;
      PlanRequest request;
      request.collective = c;
      request.ranks = n;
      std::vector<std::vector<Domains>> layouts{{domains}, {orders.front()}};
      if (a.lanes) layouts.push_back(orders);
      for (const auto& layout : layouts) {
        Plan plan;
        try {
          for (int r = 0; r < n; ++r) {
            RankPlan part = layout.size() == 1 ? generate(a, request, r, layout.front())
                                               : generate(a, request, r, layout);
            plan.header = part.header;
            plan.ranks.push_back(std::move(part));
          }
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
          continue;  // not for so many ranks
        }
        const Verdict v = verify(plan);
        EXPECT_TRUE(v.proved) << a.name << " of " << name(c) << ": " << v.story;
      }
    }
  }
}

TEST(Plans, ForAGraphAreProved) {
  for (const char* sample : {kMesh, kSwitched, kAmd}) expect_proved(graph_of_text(sample));
}

TEST(Plans, ForRealMachinesAreProved) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  for (const char* start :
       {"perlmutter", "hgx-h200", "amd-8gfx90a-4NIC-2AMD-A", "8xRTX3090", "amd-3gfx910"}) {
    expect_proved(graph_of_file(start));
  }
}

TEST(Plans, NeedGpusThatReachEachOther) {
  const std::vector<int> none;
  EXPECT_THROW(orders_of(Lanes(), none), Error);
}

TEST(Domains, AreReadOffTheGraph) {
  // All four in one mesh: one domain, and the order of a ring within.
  const Graph mesh = graph_of_text(kMesh);
  EXPECT_EQ(domains_of(mesh, mesh.gpus()).count(), 1);
  // Without NVLink, by socket.
  std::string text = kMesh;
  for (std::size_t at = 0; (at = text.find("<nvlink", at)) != std::string::npos;) {
    text.erase(at, text.find("/>", at) + 2 - at);
  }
  const Graph sockets = graph_of_text(text);
  const Domains two = domains_of(sockets, sockets.gpus());
  EXPECT_EQ(two.count(), 2);
  EXPECT_TRUE(two.near(0, 1));
  EXPECT_FALSE(two.near(1, 2));
  const std::vector<int> numa{sockets.find("numa0"), sockets.find("numa1"), sockets.find("numa0")};
  EXPECT_TRUE(domains_of(sockets, numa).near(0, 2));
  const std::vector<int> order{2, 0, 1};
  const Domains ordered = Domains::in_order(order);
  EXPECT_EQ(ordered.rank_at(0), 2);
  EXPECT_EQ(ordered.place_of(2), 0);
  EXPECT_TRUE(ordered.near(0, 2));
  const std::vector<int> some{1, 2};
  EXPECT_EQ(ordered.among(some).rank_at(0), 1);  // rank 2, which is the second of these
}

/// 72 GPUs on one switch domain, four on each of 18 hosts.
std::string rack() {
  std::string text = "<system version=\"1\">";
  for (int h = 0; h < 18; ++h) {
    text += fmt::format("<cpu host_hash=\"0x{:x}\" numaid=\"0\" arch=\"arm64\">", h + 1);
    for (int i = 0; i < 4; ++i) {
      text += fmt::format(
          "<pci busid=\"{:04x}:01:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x31c2\" "
          "link_speed=\"64.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" sm=\"103\"><nvlink "
          "target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>",
          i, i);
    }
    text += "</cpu>";
  }
  return text + "</system>";
}

TEST(Rings, OfARack) {
  const Graph g = graph_of_text(rack());
  ASSERT_EQ(g.gpus().size(), 72u);
  const auto start = std::chrono::steady_clock::now();
  const Lanes rings = find_lanes(g, -1, of(kRing));
  const Lanes trees = find_lanes(g, -1, of(kTree));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print("72 GPUs: rings and trees in {:.0f} ms\n", took.count() * 1000);
  EXPECT_LT(took.count(), 20);  // ten times what it may take, as the machine may be busy
  expect_right(g, rings, of(kRing));
  expect_right(g, trees, of(kTree));
  EXPECT_NEAR(rings.bandwidth, 18 * 40.1, 1e-6);
  EXPECT_TRUE(rings.best);
  EXPECT_GT(trees.bandwidth, 0.45 * 18 * 40.1);
}

TEST(RealMachines, ReachWhatIsKnown) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const std::map<std::string, double> known{{"perlmutter", 240},
                                            {"hgx-h200", 360},
                                            {"2xA100PCIe80-NVL12-200G", 240},
                                            {"2xA100PCIe80-NVL12-1xCX", 240},
                                            {"2xA100PCIe80-ASYMMETRIC", 240},
                                            {"8xRTX3090", 4},
                                            {"gb300", 18 * 40.1}};
  for (const auto& [start, bandwidth] : known) {
    const Lanes rings = checked(graph_of_file(start), of(kRing));
    EXPECT_GE(rings.bandwidth, bandwidth * (1 - 1e-9)) << start;
    EXPECT_TRUE(rings.best) << start;
  }
  // The orders that NCCL found on Perlmutter carry as much on this graph as they did there.
  const Graph g = graph_of_file("perlmutter");
  for (const std::string& f : topology_files("nccl-graph-xml")) {
    if (f.find("perlmutter") == std::string::npos) continue;
    const auto all = topology::read_nccl_graphs(topology::XmlSource(topology::read_file(f), f));
    std::vector<std::vector<int>> orders;
    for (const auto& c : all.graphs.front().channels) {
      auto& order = orders.emplace_back();
      for (const int dev : c.gpus) order.push_back(g.gpus()[static_cast<std::size_t>(dev)]);
    }
    EXPECT_NEAR(ring_bandwidth(g, orders, {}), 240, 1e-6);
  }
}

TEST(RealMachines, AllHaveRingsAndTreesInTime) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  double slowest = 0;
  std::string which;
  for (const std::string& f : topology_files("nccl-xml")) {
    topology::Records r = topology::read_records(f);
    const Graph g = topology::graph_of(r);
    const bool ports = !topology::data_ports(g, 0).empty();
    if (g.gpus().empty()) continue;
    for (const LanesRequest& request : {of(kRing), of(kTree), of(kRing, true)}) {
      if (request.several_hosts && !ports) continue;
      const auto start = std::chrono::steady_clock::now();
      const Lanes found = find_lanes(g, 0, request);
      if (request.shape == kRing) {
        const Lanes equal = checked_equal(g, request, 16);
        EXPECT_EQ(equal.at_most, found.bandwidth) << f;
        EXPECT_GE(equal.bandwidth, 0.8 * found.bandwidth) << f;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      expect_right(g, found, request);
      EXPECT_GT(found.bandwidth, 0) << f;
      EXPECT_TRUE(found.best) << f;
      const double limit = g.gpus().size() > 8 ? 1.0 : 0.1;
      if (took.count() / limit > slowest) {
        slowest = took.count() / limit;
        which = fmt::format("{}: {:.0f} ms", f, took.count() * 1000);
      }
    }
  }
  fmt::print("slowest by its limit ({:.2f} of it): {}\n", slowest, which);
  EXPECT_LT(slowest, 10);
}

/// What rings carry that all carry the same.
double equal_bandwidth(const Graph& g, const std::vector<std::vector<int>>& orders,
                       const std::vector<std::pair<int, int>>& ports) {
  std::vector<double> used(g.links().size());
  const auto pass = [&](int a, int b) {
    for (const int l : g.path(a, b).links) used[static_cast<std::size_t>(l)] += 1;
  };
  for (std::size_t o = 0; o < orders.size(); ++o) {
    const std::vector<int>& order = orders[o];
    for (std::size_t i = 1; i < order.size(); ++i) pass(order[i - 1], order[i]);
    if (ports.empty()) {
      pass(order.back(), order.front());
    } else {
      pass(ports[o].first, order.front());
      pass(order.back(), ports[o].second);
    }
  }
  double worst = 0;
  for (std::size_t l = 0; l < used.size(); ++l) {
    const topology::Link& link = g.link(static_cast<int>(l));
    if (link.kind != topology::LinkKind::inside) worst = std::max(worst, used[l] / link.bandwidth);
  }
  return static_cast<double>(orders.size()) / worst;
}

/// Hand-tuned rings of RCCL, on the machines that they are for: never more than what is found.
TEST(RealMachines, AreAsGoodAsTunedByHand) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  std::ifstream stream(topology_data() + "/topology/expected/rccl_rome_models.json");
  const auto models = nlohmann::json::parse(stream)["models"];
  const auto bus = [](const nlohmann::json& id) {
    const auto number = std::stoul(id.get<std::string>(), nullptr, 16);
    return topology::BusId{static_cast<std::uint32_t>(number >> 20),
                           static_cast<std::uint8_t>(number >> 12 & 0xff), 0, 0};
  };
  int compared = 0;
  for (const auto& model : models) {
    for (const auto& match : model["matches"]) {
      if (!match["xgmi_link_counts_equal"].get<bool>()) continue;
      const Graph g = graph_of_file(match["file"].get<std::string>());
      const auto at = [&](topology::NodeKind kind, const nlohmann::json& id) {
        for (const int n : g.all(kind)) {
          if (g.node(n).bus == bus(id)) return n;
        }
        return -1;
      };
      std::vector<std::vector<int>> orders;
      std::vector<std::pair<int, int>> ports;
      bool usable = true;
      std::istringstream rings(model["ringBase"].get<std::string>());
      for (std::string ring; std::getline(rings, ring, '|');) {
        std::istringstream words(ring);
        auto& order = orders.emplace_back();
        std::vector<int> nets;
        for (std::string word; words >> word;) {
          const auto index = std::stoul(word.substr(word[0] == 'N' ? 1 : 0));
          if (word[0] == 'N') {
            usable = usable && index < model["nicIds"].size();
            if (usable) nets.push_back(at(topology::NodeKind::port, model["nicIds"][index]));
          } else {
            order.push_back(at(topology::NodeKind::gpu, model["gpuIds"][index]));
          }
        }
        // Rings through NICs inside of a host are another kind of plan.
        usable = usable && (nets.empty() || nets.size() == 2) &&
                 std::ranges::find(order, -1) == order.end() &&
                 std::ranges::find(nets, -1) == nets.end();
        if (usable && nets.size() == 2) ports.emplace_back(nets[0], nets[1]);
      }
      usable = usable && (ports.empty() || ports.size() == orders.size());
      if (!usable) continue;
      ++compared;
      const bool several = !ports.empty();
      double theirs = 0;
      try {
        theirs = ring_bandwidth(g, orders, ports);
      } catch (const Error&) {
        continue;  // through a port that is too slow to be used
      }
      const double ours = find_lanes(g, 0, of(kRing, several, true)).bandwidth;
      EXPECT_GE(ours, theirs * (1 - 1e-6)) << match["file"] << " " << model["ringBase"];
      // And as lanes of equal share: both libraries run those.
      const double equal = checked_equal(g, of(kRing, several, true), 16).bandwidth;
      const double theirs_equal = equal_bandwidth(g, orders, ports);
      EXPECT_GE(equal, theirs_equal * (1 - 1e-6)) << match["file"] << " " << model["ringBase"];
    }
  }
  fmt::print("{} pairs of a model and a file compared\n", compared);
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace tutti

// GPUs that are parts of one device: that they share what the device has, whoever names them; and
// that a search for rings ends, with an honest bound, however many GPUs and links a file has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "collectives/draw/topology.h"
#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/kfd_tree.h"
#include "tests/temporary_folder.h"
#include "transport/topology/discover.h"
#include "transport/topology/divided.h"
#include "transport/topology/show/text.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::LinkKind;
using topology::Near;
using topology::NodeKind;

Graph graph_of_kfd(const test::KfdHost& host) {
  const TemporaryFolder folder;
  test::write_kfd_tree(folder.path(), host);
  topology::Records records = topology::read_records(folder.path());
  return topology::graph_of(records);
}

Graph graph_of_xml(const std::string& text) {
  topology::Records records = topology::records_of(text, "sample");
  return topology::graph_of(records);
}

LanesRequest rings(int most) {
  LanesRequest request;
  request.most_lanes = most;
  return request;
}

/// GB/s over xGMI that leave each device, or each GPU.
std::vector<double> over_links(const Graph& g, NodeKind kind) {
  std::vector<double> all;
  for (const int n : g.all(kind)) {
    double sum = 0;
    for (const int l : g.out(n)) {
      const bool part = g.node(g.link(l).to).parent == n || g.node(n).parent == g.link(l).to;
      if (g.link(l).kind == LinkKind::xgmi && !part) sum += g.link(l).bandwidth;
    }
    all.push_back(sum);
  }
  return all;
}

TEST(Partitions, HaveTheLinksOfTheirDeviceOnce) {
  for (const bool in_function : {false, true}) {
    for (const int parts : {2, 4, 8}) {  // DPX, QPX, CPX
      test::KfdHost host;
      host.devices = 4;
      host.parts = parts;
      host.in_function = in_function;
      const Graph g = graph_of_kfd(host);
      EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
      EXPECT_EQ(g.gpus().size(), 4U * static_cast<unsigned>(parts));
      EXPECT_EQ(g.all(NodeKind::device).size(), 4U);
      // As the same devices have them where they are whole.
      host.parts = 1;
      EXPECT_EQ(over_links(g, NodeKind::device), over_links(graph_of_kfd(host), NodeKind::gpu));
    }
  }
  test::KfdHost whole;
  whole.devices = 4;
  whole.parts = 1;  // SPX
  EXPECT_TRUE(graph_of_kfd(whole).all(NodeKind::device).empty());
}

/// Eight devices in eight parts each: 4,160 small files.
const Graph& cpx() {
  static const Graph graph = graph_of_kfd({});
  return graph;
}

TEST(Partitions, ReachEachOtherByTheirDevice) {
  const Graph& g = cpx();
  const auto gpus = g.gpus();
  std::set<std::string> addresses;
  for (const int gpu : gpus) addresses.insert(text_of(*g.node(gpu).bus));
  EXPECT_EQ(addresses.size(), 64U);
  const topology::Path inside = g.path(gpus[0], gpus[7]), across = g.path(gpus[0], gpus[8]);
  EXPECT_EQ(inside.near, Near::gpu_links);
  EXPECT_EQ(inside.links.size(), 2U);
  EXPECT_EQ(across.near, Near::gpu_links);
  EXPECT_EQ(across.links.size(), 3U);
  EXPECT_EQ(across.bandwidth, 48);
  // Its share of the memory, in which each byte is read and written.
  EXPECT_EQ(inside.bandwidth, 4240.0 / 8 / 2);
  // Two parts of a device have one way to another device.
  const auto second = g.path(gpus[1], gpus[9]);
  EXPECT_EQ(across.links[1], second.links[1]);
  // No way leads through a third device.
  for (const int a : gpus) {
    const auto paths = g.paths(a);
    for (const int b : gpus) EXPECT_LE(paths[static_cast<std::size_t>(b)].links.size(), 3U);
  }
  EXPECT_NE(tree_text(g).find("GPU in 8 parts"), std::string::npos);
  EXPECT_NE(draw_topology(g).find("xGMI x1"), std::string::npos);
}

TEST(Partitions, CarryNoMoreThanTheirDevices) {
  for (const int parts : {1, 2, 4, 8}) {
    test::KfdHost host;
    host.parts = parts;
    const Graph g = parts == 8 ? cpx() : graph_of_kfd(host);
    const Lanes found = find_equal_rings(g, 0, rings(16));
    const double memory = parts == 1 ? 1e9 : 4240.0 / parts / 2;
    EXPECT_NEAR(found.bandwidth, std::min(7 * 48.0, memory), 0.02 * 7 * 48) << parts;
    EXPECT_TRUE(found.best) << parts;
    LanesRequest tree = rings(256);
    tree.shape = LanesRequest::Shape::tree;
    const Lanes trees = find_lanes(g, 0, tree);
    EXPECT_GT(trees.bandwidth, 100) << parts;
    EXPECT_LE(trees.bandwidth, trees.at_most * (1 + 1e-6));
  }
}

/// Two GPUs in one device, as files name MIG's instances.
constexpr const char* kMig = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:07:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/></gpu>
      <gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/></gpu>
    </pci>
  </cpu>
</system>
)";

TEST(Partitions, OfMigShareThePciLinkAndHaveNoOthers) {
  const Graph g = graph_of_xml(kMig);
  const auto gpus = g.gpus();
  ASSERT_EQ(gpus.size(), 2U);
  ASSERT_EQ(g.all(NodeKind::device).size(), 1U);
  const topology::Path path = g.path(gpus[0], gpus[1]);
  EXPECT_EQ(path.near, Near::phb);
  EXPECT_EQ(path.bandwidth, 12);  // half of 24 GB/s
  ASSERT_EQ(g.unseen.size(), 1U);
  EXPECT_NE(g.unseen.front().find("MIG"), std::string::npos);
}

TEST(Searches, EndWithinTheirBudget) {
  // 64 GPUs with a link to each other one: 4,032 links, too many for a linear program.
  std::string xml = "<system version=\"2\"><cpu numaid=\"0\">";
  for (int gpu = 0; gpu < 64; ++gpu) {
    xml += fmt::format(
        "<pci busid=\"{:04x}:01:00.0\" class=\"0x038000\" vendor=\"0x1002\" "
        "device=\"0x74a1\"><gpu dev=\"{}\" gcn=\"gfx942\">",
        gpu, gpu);
    for (int to = 0; to < 64; ++to) {
      if (to == gpu) continue;
      xml += fmt::format("<xgmi target=\"{:04x}:01:00.0\" count=\"{}\" tclass=\"0x038000\"/>", to,
                         to / 8 == gpu / 8 ? 13 : 1);
    }
    xml += "</gpu></pci>";
  }
  const Graph g = graph_of_xml(xml + "</cpu></system>");
  ASSERT_EQ(g.gpus().size(), 64U);
  for (const auto shape : {LanesRequest::Shape::ring, LanesRequest::Shape::tree}) {
    LanesRequest request = rings(16);
    request.shape = shape;
    const bool equal = shape == LanesRequest::Shape::ring;
    const auto start = std::chrono::steady_clock::now();
    const Lanes found = equal ? find_equal_rings(g, 0, request) : find_lanes(g, 0, request);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print("64 GPUs in a mesh: {:.1f} s\n", took.count());
    EXPECT_LT(took.count(), 20);  // ten times what it may take, as the machine may be busy
    EXPECT_GT(found.bandwidth, 0);
    EXPECT_FALSE(found.best);
    // Not beyond what leaves a GPU.
    EXPECT_GT(found.at_most, found.bandwidth);
    EXPECT_LE(found.at_most, 63 * 13 * 48.0);
  }
}

TEST(Searches, AmongMoreGpusThanAHostHasAreRefused) {
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 1025; ++i) {
    xml += fmt::format("<pci busid=\"{:04x}:01:00.0\" class=\"0x030200\"><gpu dev=\"{}\"/></pci>",
                       i, i);
  }
  const Graph g = graph_of_xml(xml + "</cpu></system>");
  try {
    find_lanes(g, 0, rings(16));
    FAIL() << "1025 GPUs were not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("1025 GPUs"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti

// GPUs that are parts of one device: that they share what the device has, whatever names them; and
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
#include "tests/support/temporary_folder.h"
#include "tests/topology/kfd_tree.h"
#include "topology/discover.h"
#include "topology/divided.h"
#include "topology/show/text.h"
#include "topology/write_nccl.h"

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
      host.devices = 2;
      host.parts = parts;
      host.in_function = in_function;
      const Graph g = graph_of_kfd(host);
      EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
      EXPECT_EQ(g.gpus().size(), 2U * static_cast<unsigned>(parts));
      EXPECT_EQ(g.all(NodeKind::device).size(), 2U);
      // As the same devices have them where they are whole.
      host.parts = 1;
      EXPECT_EQ(over_links(g, NodeKind::device), over_links(graph_of_kfd(host), NodeKind::gpu));
    }
  }
  test::KfdHost whole;
  whole.devices = 2;
  whole.parts = 1;  // SPX
  EXPECT_TRUE(graph_of_kfd(whole).all(NodeKind::device).empty());
}

/// Eight MI300X in so many parts each.
Graph eight_devices(int parts) {
  std::string xml = "<system version=\"2\"><cpu numaid=\"0\">";
  for (int gpu = 0; gpu < 8 * parts; ++gpu) {
    xml += fmt::format(
        "<pci busid=\"0000:{}0:00.{}\" class=\"0x038000\" vendor=\"0x1002\" device=\"0x74a1\" "
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" gcn=\"gfx942\">",
        1 + gpu / parts, gpu % parts, gpu);
    for (int to = 0; to < 8 * parts; ++to) {
      if (to / parts == gpu / parts) continue;
      xml += fmt::format("<xgmi target=\"0000:{}0:00.{}\" count=\"1\" tclass=\"0x038000\"/>",
                         1 + to / parts, to % parts);
    }
    xml += "</gpu></pci>";
  }
  return graph_of_xml(xml + "</cpu></system>");
}

TEST(Partitions, ReachEachOtherByTheirDevice) {
  const Graph g = eight_devices(8);
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
    const Graph g = eight_devices(parts);
    ASSERT_EQ(g.all(NodeKind::device).size(), parts == 1 ? 0U : 8U);
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

TEST(Partitions, ReachPortsByThePciLinkThatTheyShare) {
  const Graph g = graph_of_xml(R"(<system version="2">
  <cpu numaid="0"><pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
    <pci busid="0000:11:00.0" class="0x038000" vendor="0x1002" device="0x74a1" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" gcn="gfx942"/></pci>
    <pci busid="0000:11:00.1" class="0x038000" vendor="0x1002" device="0x74a1" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" gcn="gfx942"/></pci>
    <pci busid="0000:12:00.0" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic></pci>
  </pci></cpu></system>)");
  const auto gpus = g.gpus();
  ASSERT_EQ(gpus.size(), 2U);
  const int port = g.find("mlx5_0");
  const topology::Path first = g.path(gpus[0], port), second = g.path(gpus[1], port);
  EXPECT_EQ(first.near, Near::pix);
  EXPECT_EQ(first.bandwidth, 48);
  ASSERT_EQ(first.links.size(), 4U);
  EXPECT_EQ(first.links[1], second.links[1]);
  EXPECT_EQ(g.link(first.links[1]).kind, LinkKind::pci);
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
  // And so they are written.
  topology::Records records = topology::records_of(kMig, "sample");
  topology::Records again = topology::records_of(topology::to_nccl_xml(records), "again");
  EXPECT_EQ(topology::graph_of(again).all(NodeKind::device).size(), 1U);
  ASSERT_EQ(g.unseen.size(), 1U);
  EXPECT_NE(g.unseen.front().find("MIG"), std::string::npos);
}

/// Files of libraries that know no parts give all of a device the same address, and other numbers.
TEST(Partitions, AreThoseWithOneAddressInFiles) {
  for (const bool in_one_element : {false, true}) {
    std::string xml = "<system version=\"2\"><cpu numaid=\"0\">";
    for (int gpu = 0; gpu < 8; ++gpu) {
      const int device = gpu / 4;
      if (!in_one_element || gpu % 4 == 0) {
        xml += fmt::format(
            "<pci busid=\"0000:{}0:00.0\" class=\"0x038000\" vendor=\"0x1002\" "
            "device=\"0x74a1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">",
            1 + device);
      }
      xml += fmt::format(
          "<gpu dev=\"{}\" rank=\"{}\" gcn=\"gfx942\"><xgmi target=\"0000:{}0:00.0\" count=\"1\" "
          "tclass=\"0x038000\"/></gpu>",
          gpu, gpu, 2 - device);
      if (!in_one_element || gpu % 4 == 3) xml += "</pci>";
    }
    const Graph g = graph_of_xml(xml + "</cpu></system>");
    EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
    EXPECT_EQ(g.gpus().size(), 8U);
    EXPECT_EQ(over_links(g, NodeKind::device), (std::vector<double>{48, 48}));
  }
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

/// A torus of 128 GPUs, whose linear program is full of corners that are one: what is rounded in
/// one step goes on in the next.
TEST(Searches, ClaimNoMoreThanLeavesAGpu) {
  const auto bus = [](int gpu) { return fmt::format("{:04x}:01:00.0", (gpu + 128) % 128); };
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int gpu = 0; gpu < 128; ++gpu) {
    xml += fmt::format(
        "<pci busid=\"{}\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x20b0\" "
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" sm=\"80\">",
        bus(gpu), gpu);
    for (const int step : {1, -1, 8, -8}) {
      xml +=
          fmt::format("<nvlink target=\"{}\" count=\"2\" tclass=\"0x030200\"/>", bus(gpu + step));
    }
    xml += "</gpu></pci>";
  }
  const Graph g = graph_of_xml(xml + "</cpu></system>");
  ASSERT_EQ(g.gpus().size(), 128U);
  LanesRequest request = rings(256);
  request.shape = LanesRequest::Shape::tree;
  const Lanes trees = find_lanes(g, 0, request);
  EXPECT_GT(trees.bandwidth, 0);
  // Four neighbours over two NVLinks of 20 GB/s, and 48 GB/s of PCI.
  EXPECT_LE(trees.at_most, 4 * 40 + 48);
  std::vector<double> most;
  for (const topology::Link& l : g.links()) most.push_back(l.bandwidth * (1 + 1e-5));
  for (std::size_t l = 0; l < most.size(); ++l) EXPECT_LE(trees.used[l], most[l]) << l;
}

TEST(Searches, OfGpusThatDoNotMeetFindNone) {
  const char* xml = R"(<system version="1">
  <cpu host_hash="0xa" numaid="0"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="89"/></pci></cpu>
  <cpu host_hash="0xb" numaid="0"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="89"/></pci></cpu>
</system>)";
  const Graph g = graph_of_xml(xml);
  ASSERT_EQ(g.gpus().size(), 2U);
  EXPECT_TRUE(find_lanes(g, -1, rings(16)).lanes.empty());
  EXPECT_TRUE(find_equal_rings(g, -1, rings(16)).lanes.empty());
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

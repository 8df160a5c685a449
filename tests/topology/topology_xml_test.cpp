// Topologies in XML, of NCCL and of hwloc: what the files say arrives in the records and in the
// graph.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <utility>

#include "tests/support/contains.h"
#include "tests/support/nccl_graphs.h"
#include "tests/topology/topology_texts.h"
#include "topology/nics.h"
#include "topology/show/inventory.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

TEST(Nccl, AMeshHasItsLinksAndNics) {
  Records records;
  const Graph g = graph_of_text(kMesh, &records);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  ASSERT_EQ(g.gpus().size(), 4u);
  EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV4");
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("gpu3")).bandwidth, 80);
  EXPECT_EQ(near(g, "gpu0", "mlx5_0"), "PIX");
  EXPECT_EQ(near(g, "gpu0", "mlx5_1"), "SYS");
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("mlx5_0")).bandwidth, 24);
  EXPECT_EQ(g.node(g.find("gpu2")).model, "A100 SXM4 40GB");
  EXPECT_EQ(text_of(*g.node(g.find("gpu2")).bus), "10000:04:00.0");
  EXPECT_EQ(g.node(g.find("gpu2")).origin.line, 30);
  const Inventory n = inventory_of(records);
  EXPECT_EQ(n.cpus, 2);
  EXPECT_EQ(n.pci, 8);
  EXPECT_EQ(n.nvlink_links, 48);
  EXPECT_EQ(n.net_speeds, "200000x2");
  const auto nics = nics_of_gpus(g);
  ASSERT_EQ(nics.size(), 4u);
  EXPECT_EQ(g.node(nics[1].port).name, "mlx5_0");
  EXPECT_EQ(g.node(nics[2].port).name, "mlx5_1");
  EXPECT_EQ(nics[2].sharing, 2);
}

TEST(Nccl, WhatNobodyReadsIsNamedAndTheRestCounts) {
  const auto changed = [](const char* what, const char* with) {
    return std::regex_replace(std::string(kMesh), std::regex(what), with);
  };
  const std::pair<std::string, const char*> texts[] = {
      {changed(" sm=", " sm=\"80\" sm="), "<gpu> has sm twice; the first one counts"},
      {changed("<gpu dev", "<fpga/><gpu dev"), "<fpga> in <pci> is not known; it is left out"},
      {changed("</gpu>", "<nvlinks/></gpu>"), "<nvlinks> in <gpu> is not known; it is left out"},
      {changed("<cpu ", "<net name=\"stray\"/><cpu "), "<net> in <system> is not known"},
  };
  for (const auto& [text, doubt] : texts) {
    const Graph g = graph_of_text(text);
    ASSERT_FALSE(g.doubts.empty()) << doubt;
    EXPECT_CONTAINS(g.doubts.front().what, doubt);
    ASSERT_EQ(g.gpus().size(), 4u) << doubt;
    EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV4") << doubt;
    EXPECT_EQ(near(g, "gpu0", "mlx5_0"), "PIX") << doubt;
  }
  EXPECT_EQ(graph_of_text(texts[1].first).doubts.size(), 1u) << "one for all of a kind";
}

TEST(Nccl, GpusOnSwitchesReachEachOtherAtFullSpeed) {
  const Graph g = graph_of_text(kSwitched);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV18");
  EXPECT_NEAR(g.path(g.find("gpu0"), g.find("gpu3")).bandwidth, 18 * 20.6, 1e-9);
  // By C2C, which is wider than PCI.
  EXPECT_NEAR(g.path(g.find("gpu0"), g.find("numa0")).bandwidth, 447.12, 1e-9);
  EXPECT_EQ(g.all(NodeKind::port).size(), 1u) << "eth0 is listed twice and counts once";
}

TEST(Nccl, AmdGpusAreLinkedByXgmi) {
  const Graph g = graph_of_text(kAmd);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "XG4");
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("gpu1")).bandwidth, 4 * 36);
}

TEST(Nccl, ASkeletonIsEnough) {
  const Graph g = graph_of_text(kSkeleton);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(g.gpus().size(), 2u);
  EXPECT_EQ(g.all(NodeKind::port).size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "PIX");
}

TEST(Nccl, LinksThatNobodySaysAreAsFastAsTheirDevices) {
  // A guest: speeds are unknown everywhere. What is above a fast device is assumed as fast.
  const Graph g = graph_of_text(
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x060400\" "
      "link_speed=\"Unknown\" link_width=\"0\"><pci busid=\"0000:02:00.0\" class=\"0x030200\" "
      "vendor=\"0x10de\" device=\"0x2330\" link_speed=\"\" link_width=\"0\"><gpu dev=\"0\" "
      "sm=\"90\" "
      "rank=\"0\"/></pci><pci busid=\"0000:03:00.0\" class=\"0x020700\" vendor=\"0x15b3\" "
      "device=\"0x101e\" link_speed=\"Unknown speed\" link_width=\"0\"><nic><net name=\"mlx5_0\" "
      "dev=\"0\" "
      "speed=\"400000\" port=\"1\"/></nic></pci></pci></cpu></system>");
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("mlx5_0")).bandwidth, 48);
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("numa0")).bandwidth, 48);
}

TEST(Nccl, TwoHostsShareASwitchWithoutAnAddress) {
  std::string two = kSwitched;
  const std::string cpu = two.substr(two.find("<cpu"), two.find("</system>") - two.find("<cpu"));
  std::string other = cpu;
  for (std::size_t at = 0; (at = other.find("\"0xa\"", at)) != std::string::npos;) {
    other.replace(at, 5, "\"0xb\"");
  }
  const Graph g = graph_of_text("<system version=\"1\">" + cpu + other + "</system>");
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(g.hosts(), 2);
  EXPECT_EQ(g.gpus().size(), 8u);
  // The switch without an address belongs to both.
  EXPECT_EQ(near(g, "h0.gpu0", "h1.gpu0"), "NV18");
}

TEST(Nccl, ComesBackAsItWas) {
  for (const char* sample : {kMesh, kSwitched, kAmd, kSkeleton}) {
    const Records first = records_of(sample, "sample");
    const Records second = records_of(to_nccl_xml(first), "again");
    EXPECT_EQ(to_nccl_xml(first), to_nccl_xml(second));
    const Inventory a = inventory_of(first), b = inventory_of(second);
    EXPECT_EQ(a.elements, b.elements);
    EXPECT_EQ(a.nvlink_links, b.nvlink_links);
    EXPECT_EQ(a.xgmi_links, b.xgmi_links);
    EXPECT_EQ(a.c2c_elements, b.c2c_elements);
    EXPECT_EQ(a.net_speeds, b.net_speeds);
    EXPECT_EQ(a.gpus_by_class_only, b.gpus_by_class_only);
  }
}

TEST(Nccl, GraphFilesAreReadAndAreNoMachine) {
  const XmlSource xml(
      R"(<graphs version="1"><!-- x --><graph id="0" pattern="4" crossnic="1" nchannels="2"
      speedintra="40.0" speedinter="20" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel><net dev="5"/><gpu dev="0"/><gpu dev="0x1"/><gpu dev="0x100000000000002"/><net dev="5"/></channel>
  </graph></graphs>)",
      "graph");
  const NcclGraphs all = read_nccl_graphs(xml);
  ASSERT_EQ(all.graphs.size(), 1u);
  EXPECT_EQ(all.graphs[0].channels[0].gpus, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(all.graphs[0].channels[0].nets, (std::vector<int>{5, 5}));
  EXPECT_DOUBLE_EQ(all.graphs[0].speed_intra, 40);
  ASSERT_EQ(all.doubts.size(), 1u);  // two channels were promised
  EXPECT_CONTAINS(refusal("<graphs version=\"1\"/>"), "not a machine");
}

TEST(Nccl, APortWithoutItsNumberGetsOneThatIsFree) {
  std::string lost = kMesh;
  const std::string number = " dev=\"1\" speed=";
  lost.replace(lost.find(number), number.size(), " speed=");
  const Graph g = graph_of_text(lost), whole = graph_of_text(kMesh);
  ASSERT_EQ(g.doubts.size(), 1u) << g.doubts.back().what;
  EXPECT_CONTAINS(g.doubts[0].what, "mlx5_1");
  EXPECT_CONTAINS(g.doubts[0].what, "has no dev");
  EXPECT_EQ(g.node(g.find("mlx5_1")).number, whole.node(whole.find("mlx5_1")).number);
}

/// Each of many hosts has its sockets joined, the last one too.
TEST(Nccl, SocketsOfManyHostsAreJoined) {
  std::string text = "<system version=\"1\">";
  for (int h = 0; h < 40; ++h) {
    for (int numa = 0; numa < 2; ++numa) {
      text += fmt::format(
          "<cpu numaid=\"{}\" host_hash=\"0x{:x}\"><pci busid=\"0000:{:02x}:00.0\" "
          "class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\"><gpu dev=\"{}\" "
          "sm=\"90\"/></pci></cpu>",
          numa, h, numa + 1, numa);
    }
  }
  const Graph g = graph_of_text(text + "</system>");
  EXPECT_EQ(near(g, "h0.gpu0", "h0.gpu1"), "SYS");
  EXPECT_EQ(near(g, "h39.gpu0", "h39.gpu1"), "SYS");
}

TEST(Hwloc, ReadsFormat1) {
  Records r;
  const Graph g = graph_of_text(kHwloc1, &r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(r.cpus.size(), 2u) << "a NUMA domain without cores is no processor";
  EXPECT_EQ(r.cpus[0].family, 6);
  EXPECT_EQ(r.hosts[0], "one");
  EXPECT_EQ(r.caches, 1);
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_EQ(g.node(g.gpus()[0]).model, "Tesla P100-SXM2-16GB");
  EXPECT_DOUBLE_EQ(g.path(g.gpus()[0], g.find("numa0")).bandwidth, 12);
  EXPECT_EQ(near(g, "gpu0", "mlx5_0"), "SYS");
  EXPECT_EQ(g.find("ib0"), -1) << "the same port as mlx5_0";
}

TEST(Hwloc, ReadsFormat3WithNvlink) {
  const Graph g = graph_of_text(kHwloc3);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV2");
  EXPECT_EQ(near(g, "gpu1", "eth2"), "SYS");
}

TEST(Hwloc, AGpuThatDoesNotSayWhatItIsIsOneByItsName) {
  const std::string text = kHwloc3, type = "pci_type=\"0302 [10de:1db1] [10de:1212] a1 00\"";
  for (const char* value : {"", "pci_type=\"0\""}) {
    std::string lost = text;
    lost.replace(lost.rfind(type), type.size(), value);
    const Graph g = graph_of_text(lost);
    ASSERT_EQ(g.doubts.size(), 1u) << g.doubts.back().what;
    EXPECT_CONTAINS(g.doubts[0].what, "0000:04:00.0 has no pci_type");
    EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV2");
  }
  // Without an address, and with links that differ: it cannot be linked, and nothing breaks.
  const Graph g =
      graph_of_text(std::regex_replace(std::regex_replace(text, std::regex("0000:04:00.0"), ""),
                                       std::regex("0 50000 50000 0"), "0 50000 25000 0"));
  EXPECT_EQ(g.gpus().size(), 2u);
}

TEST(Hwloc, ANicThatDoesNotSayWhatItIsIsLikeAnother) {
  // Another one with such a name tells its model, and so its speed.
  const std::string type = "pci_type=\"0207 [15b3:1013] [15b3:0003] 00\"", text = kHwloc1;
  const std::string other =
      "<object type=\"PCIDev\" os_index=\"528385\" pci_busid=\"0000:82:00.0\" " + type +
      " pci_link_speed=\"15.753846\"><object type=\"OSDev\" name=\"mlx5_1\" osdev_type=\"3\"/>"
      "</object>";
  for (const bool alone : {true, false}) {
    std::string lost = text;
    const auto at = lost.find(type);
    lost.replace(at, type.size(), "");
    if (!alone)
      lost.insert(lost.find("</object>", lost.find("name=\"mlx5_0\"")) + 9,
                  "</object>" + other.substr(0, other.size() - 9));
    Records r;
    const Graph g = graph_of_text(lost, &r);
    ASSERT_EQ(g.doubts.size(), 1u) << g.doubts.back().what;
    EXPECT_CONTAINS(g.doubts[0].what, "0000:81:00.0 has no pci_type");
    EXPECT_CONTAINS(g.doubts[0].what, alone ? "mlx5_0 makes it a NIC" : "like 0000:82:00.0");
    ASSERT_GE(g.find("mlx5_0"), 0);
    const double bandwidth = g.link(g.out(g.find("mlx5_0")).back()).bandwidth;
    EXPECT_TRUE(alone || bandwidth >= 12) << bandwidth;
  }
}

}  // namespace
}  // namespace tutti::topology

// Topology from files: what each format says arrives in the records and in the graph, and what is
// no topology is refused with a reason.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <string>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/topology/topology_samples.h"
#include "topology/cpu_mask.h"
#include "topology/discover.h"
#include "topology/nics.h"
#include "topology/read_nccl.h"
#include "topology/show/text.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

Graph graph_of_text(const std::string& text, Records* kept = nullptr) {
  Records records = records_of(text, "sample");
  Graph graph = graph_of(records);
  if (kept != nullptr) *kept = records;
  return graph;
}

std::string refusal(const std::string& text) {
  try {
    records_of(text, "sample");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "";
}

std::string near(const Graph& g, const char* a, const char* b) {
  return near_text(g, g.path(g.find(a), g.find(b)));
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(BusIds, AreReadAndWritten) {
  EXPECT_EQ(text_of(*parse_bus_id("0000:3b:00.1")), "0000:3b:00.1");
  EXPECT_EQ(text_of(*parse_bus_id("3b:00.0")), "0000:3b:00.0");
  EXPECT_EQ(text_of(*parse_bus_id("10000:00:04.0")), "10000:00:04.0");
  EXPECT_TRUE(parse_bus_id("fffffff:ff:ff.0")->is_nameless_switch());
  for (const char* none : {"", ":", "0000:3b:00", "0000:3b:00.g", "0000:3b:00.0x", "x:00:00.0",
                           "123456789:00:00.0", "0000:100:00.0", "0000::00.0", "gpu0"}) {
    EXPECT_FALSE(parse_bus_id(none)) << none;
  }
}

TEST(Masks, AreReadAndWritten) {
  EXPECT_EQ(members_of_mask("00000001,80000000"), (std::set<int>{31, 32}));
  EXPECT_EQ(members_of_mask("0x00000001,0x00000003"), (std::set<int>{0, 1, 32}));
  EXPECT_EQ(members_of_list("0-2,8"), (std::set<int>{0, 1, 2, 8}));
  EXPECT_EQ(mask_of({0, 33}), "00000002,00000001");
  EXPECT_TRUE(members_of_mask("zz,").empty());
  EXPECT_LE(members_of_list("0-99999999999").size(), 65536u);
}

TEST(Nccl, AMesh) {
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

TEST(Nccl, Switches) {
  const Graph g = graph_of_text(kSwitched);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV18");
  EXPECT_NEAR(g.path(g.find("gpu0"), g.find("gpu3")).bandwidth, 18 * 20.6, 1e-9);
  // By C2C, which is wider than PCI.
  EXPECT_NEAR(g.path(g.find("gpu0"), g.find("numa0")).bandwidth, 447.12, 1e-9);
  EXPECT_EQ(g.all(NodeKind::port).size(), 1u) << "eth0 is listed twice and counts once";
}

TEST(Nccl, Amd) {
  const Graph g = graph_of_text(kAmd);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "XG4");
  EXPECT_DOUBLE_EQ(g.path(g.find("gpu0"), g.find("gpu1")).bandwidth, 4 * 36);
}

TEST(Nccl, ASkeleton) {
  const Graph g = graph_of_text(kSkeleton);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(g.gpus().size(), 2u);
  EXPECT_EQ(g.all(NodeKind::port).size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "PIX");
}

TEST(Nccl, LinksThatNobodySays) {
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

TEST(Nccl, TwoHosts) {
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

TEST(Nccl, GraphFiles) {
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
  EXPECT_SAYS(refusal("<graphs version=\"1\"/>"), "not a machine");
}

TEST(Hwloc, Format1) {
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

TEST(Hwloc, Format3WithNvlink) {
  const Graph g = graph_of_text(kHwloc3);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV2");
  EXPECT_EQ(near(g, "gpu1", "eth2"), "SYS");
}

constexpr const char* kSmiHead =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";

TEST(Hwloc, AGpuThatDoesNotSayWhatItIs) {
  const std::string text = kHwloc3, type = "pci_type=\"0302 [10de:1db1] [10de:1212] a1 00\"";
  for (const char* value : {"", "pci_type=\"0\""}) {
    std::string lost = text;
    lost.replace(lost.rfind(type), type.size(), value);
    const Graph g = graph_of_text(lost);
    ASSERT_EQ(g.doubts.size(), 1u) << g.doubts.back().what;
    EXPECT_SAYS(g.doubts[0].what, "0000:04:00.0 has no pci_type");
    EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV2");
  }
  // Without an address, and with links that differ: it cannot be linked, and nothing breaks.
  const Graph g =
      graph_of_text(std::regex_replace(std::regex_replace(text, std::regex("0000:04:00.0"), ""),
                                       std::regex("0 50000 50000 0"), "0 50000 25000 0"));
  EXPECT_EQ(g.gpus().size(), 2u);
}

TEST(Nccl, APortWithoutItsNumberGetsOneThatIsFree) {
  std::string lost = kMesh;
  const std::string number = " dev=\"1\" speed=";
  lost.replace(lost.find(number), number.size(), " speed=");
  const Graph g = graph_of_text(lost), whole = graph_of_text(kMesh);
  ASSERT_EQ(g.doubts.size(), 1u) << g.doubts.back().what;
  EXPECT_SAYS(g.doubts[0].what, "mlx5_1");
  EXPECT_SAYS(g.doubts[0].what, "has no dev");
  EXPECT_EQ(g.node(g.find("mlx5_1")).number, whole.node(whole.find("mlx5_1")).number);
}

TEST(Hwloc, ANicThatDoesNotSayWhatItIs) {
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
    EXPECT_SAYS(g.doubts[0].what, "0000:81:00.0 has no pci_type");
    EXPECT_SAYS(g.doubts[0].what, alone ? "mlx5_0 makes it a NIC" : "like 0000:82:00.0");
    ASSERT_GE(g.find("mlx5_0"), 0);
    const double bandwidth = g.link(g.out(g.find("mlx5_0")).back()).bandwidth;
    EXPECT_TRUE(alone || bandwidth >= 12) << bandwidth;
  }
}

TEST(Smi, TabsSpacesAndMissingColumns) {
  const std::string tabs = std::string("\033[4m") + kSmiHead + "\033[0m" +
                           "GPU0\t X \tNV4\tPIX\tSYS\t0-3,8-11\t0\t\tN/A\n"
                           "GPU1\tNV4\t X \tSYS\tPXB\t4-7\t1\t\tN/A\n"
                           "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\nNIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n\n"
                           "Legend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_7\n";
  const Graph g = graph_of_text(tabs);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV4");
  EXPECT_EQ(near(g, "gpu0", "mlx5_7"), "PIX");
  EXPECT_EQ(near(g, "gpu1", "NIC1"), "PXB");
  EXPECT_EQ(near(g, "gpu0", "NIC1"), "SYS");
  const Graph spaces = graph_of_text(
      "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
      "GPU0     X      NODE     0-23            N/A\nGPU1    NODE     X      0-23            "
      "N/A\n");
  EXPECT_EQ(near(spaces, "gpu0", "gpu1"), "NODE");
}

TEST(Smi, EightOnSwitchesAreNoMesh) {
  std::string text = "      GPU0 GPU1 GPU2 GPU3\n";
  for (int i = 0; i < 4; ++i) {
    text += fmt::format("GPU{}", i);
    for (int j = 0; j < 4; ++j) text += i == j ? " X" : " NV18";
    text += "\n";
  }
  const Graph g = graph_of_text(text);
  EXPECT_EQ(g.all(NodeKind::gpu_switch).size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV18");
}

TEST(Smi, StatusMatricesAreNone) {
  EXPECT_SAYS(refusal(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tNS\tX\n"), "topo -m");
  EXPECT_SAYS(refusal("GPU0 GPU1\nGPU0 X\n"), "sample:2");
  EXPECT_SAYS(refusal("GPU0 GPU1 GPU2\nGPU0 X PIX PIX\n"), "no row of GPU1");
}

/// Two pairs of a GPU and a NIC on each of two domains; `change` is told each cell.
std::string smi_matrix(const std::function<std::string(int, int, std::string)>& change,
                       const std::string& numa = "", int without_row = -1) {
  std::string text =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity\n";
  for (int i = 0; i < 8; ++i) {
    if (i == without_row) continue;
    text += fmt::format("{}{}", i < 4 ? "GPU" : "NIC", i % 4);
    for (int j = 0; j < 8; ++j) {
      const std::string cell = i == j                   ? " X "
                               : i < 4 && j < 4         ? "NV18"
                               : i % 4 == j % 4         ? "PIX"
                               : i % 4 / 2 == j % 4 / 2 ? "NODE"
                                                        : "SYS";
      text += "\t" + change(i, j, cell);
    }
    if (i < 4)
      text += fmt::format("\t{}\t{}", i < 2 ? "0-3" : "4-7",
                          numa.empty() || i != 1 ? (i < 2 ? "0,2-9" : "1,10-17") : numa);
    text += "\n";
  }
  return text;
}

std::string as_is(int, int, std::string cell) { return cell; }

/// What a healthy matrix says, with one doubt that names what is wrong.
void expect_mended(const std::string& text, const std::string& doubt) {
  const Graph g = graph_of_text(text);
  ASSERT_EQ(g.doubts.size(), 1u) << doubt << ": " << (g.doubts.empty() ? "" : g.doubts.back().what);
  EXPECT_SAYS(g.doubts[0].what, doubt);
  EXPECT_EQ(g.all(NodeKind::numa).size(), 2u) << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC0"), "PIX") << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC1"), "NODE") << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC3"), "SYS") << doubt;
  EXPECT_EQ(near(g, "gpu1", "gpu2"), "NV18") << doubt;
}

TEST(Smi, OneWrongRecordDoesNotDecide) {
  const Graph healthy = graph_of_text(smi_matrix(as_is));
  EXPECT_TRUE(healthy.doubts.empty()) << healthy.doubts.front().what;
  EXPECT_EQ(healthy.node(healthy.find("numa1")).number, 1) << "of 1,10-17";
  const auto one = [](int row, int column, const std::string& value) {
    return smi_matrix([=](int i, int j, const std::string& cell) {
      return i == row && j == column ? value : cell;
    });
  };
  expect_mended(one(0, 7, "PIX"), "GPU0 -> NIC3 is PIX, back it is SYS; SYS is taken");
  expect_mended(one(7, 0, "NODE"), "GPU0 -> NIC3 is SYS, back it is NODE; SYS is taken");
  expect_mended(one(0, 4, "SYS"), "GPU0 -> NIC0 is SYS, back it is PIX; PIX is taken");
  expect_mended(one(4, 0, "N/A"), "NIC0 -> GPU0 has 'N/A'");
  expect_mended(one(1, 2, "NV0"), "gpu1 -> gpu2 has 0 links");
  expect_mended(smi_matrix(as_is, "1"), "GPU1 says NUMA domain 1");
  expect_mended(smi_matrix(as_is, "", 1), "GPU1 has no row");
  expect_mended(smi_matrix(as_is, "", 5), "NIC1 has no row");
  const std::string text = smi_matrix(as_is);
  const std::size_t row = text.find("GPU1\tNV18"), end = text.find('\n', row);
  expect_mended(text + text.substr(row, end + 1 - row), "GPU1 has two rows");
  expect_mended(text + "\n" + text, "another matrix");
}

TEST(Smi, ManyDoubtsAreOneShortLine) {
  std::string text = "\t", rows;
  for (int i = 0; i < 64; ++i) {
    text += fmt::format("GPU{}\t", i);
    rows += fmt::format("\nGPU{}", i);
    for (int j = 0; j < 64; ++j) rows += i == j ? "\tX" : i < j ? "\tSYS" : "\tNODE";
  }
  const Graph g = graph_of_text(text + rows);
  ASSERT_EQ(g.doubts.size(), 1u);
  EXPECT_SAYS(g.doubts[0].what, "and 1760 more is SYS, back it is NODE; NODE is taken");
}

TEST(Smi, BlankLinesMarksAndEndsOfLines) {
  const std::string text = smi_matrix(as_is);
  for (const auto& [what, with] : {std::pair{"\n", "\n\n"}, {"\n", "\r\n"}}) {
    const Graph g =
        graph_of_text("\xef\xbb\xbf" + std::regex_replace(text, std::regex(what), with));
    EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
    EXPECT_EQ(g.all(NodeKind::port).size(), 4u);
  }
}

TEST(Smi, GuestsWithoutDomains) {
  // The same cores, or none at all: no reason to put a socket's link between GPUs.
  for (const char* cores : {"0-23\tN/A", "\t", "N/A\tN/A"}) {
    const Graph g = graph_of_text(fmt::format(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV2\t{}\nGPU1\tNV2\tX\t{}\n", cores,
        cores));
    EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
    EXPECT_EQ(g.all(NodeKind::numa).size(), 1u) << cores;
  }
}

// --- Trees ---------------------------------------------------------------------------------------

class Tree : public ::testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    const std::string full = folder.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << text << "\n";
  }
  void link(const std::string& path, const std::string& target) {
    const std::string full = folder.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::filesystem::create_symlink(target, full);
  }
  void device(const std::string& chain, const std::string& pci_class, const std::string& vendor,
              const std::string& numa) {
    const std::string id = chain.substr(chain.rfind('/') + 1);
    const std::string real = "sys/devices/" + chain + "/";
    file(real + "class", pci_class);
    file(real + "vendor", vendor);
    file(real + "device", "0x1234");
    file(real + "numa_node", numa);
    file(real + "current_link_speed", "16.0 GT/s PCIe");
    file(real + "current_link_width", "16");
    link("sys/bus/pci/devices/" + id, "../../../devices/" + chain);
  }
  TemporaryFolder folder;
};

TEST_F(Tree, Sysfs) {
  file("sys/devices/system/node/online", "0-2");
  file("sys/devices/system/node/node0/cpumap", "00000000");
  file("sys/devices/system/node/node1/cpumap", "0000000f");
  file("sys/devices/system/node/node2/cpumap", "000000f0");
  file("proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 106");
  device("pci0000:10/0000:10:01.0", "0x060400", "0x8086", "1");
  device("pci0000:10/0000:10:01.0/0000:11:00.0", "0x030200", "0x10de", "1");
  device("pci0000:10/0000:10:01.0/0000:12:00.0", "0x020700", "0x15b3", "1");
  device("pci10000:80/10000:80:02.0", "0x020000", "0x8086", "2");
  device("pci10000:80/10000:80:02.1", "0x020000", "0x8086", "2");
  link("sys/devices/pci10000:80/10000:80:02.1/physfn", "../10000:80:02.0");
  device("pci10000:80/10000:80:03.0", "0x030000", "0x1a03", "2");  // of a management controller
  link("sys/class/net/eth7", "../../devices/pci10000:80/10000:80:02.0/net/eth7");
  file("sys/devices/pci10000:80/10000:80:02.0/net/eth7/speed", "25000");
  file("sys/devices/pci10000:80/10000:80:02.0/net/eth7/operstate", "up");
  link("sys/class/net/ib0", "../../devices/pci0000:10/0000:10:01.0/0000:12:00.0/net/ib0");
  link("sys/class/net/docker0", "../../devices/virtual/net/docker0");
  const std::string ib = "sys/devices/pci0000:10/0000:10:01.0/0000:12:00.0/infiniband/mlx5_3";
  link("sys/class/infiniband/mlx5_3",
       "../../devices/pci0000:10/0000:10:01.0/0000:12:00.0/infiniband/mlx5_3");
  file(ib + "/ports/1/rate", "200 Gb/sec (4X HDR)");
  file(ib + "/ports/1/state", "4: ACTIVE");
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(r.cpus.size(), 2u);
  EXPECT_EQ(r.cpus[0].numa, 1);
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "mlx5_3"), "PIX");
  EXPECT_EQ(near(g, "gpu0", "eth7"), "SYS");
  EXPECT_EQ(g.find("ib0"), -1);
  EXPECT_EQ(g.find("docker0"), -1);
  const Path path = g.path(g.gpus()[0], g.find("mlx5_3"));
  EXPECT_DOUBLE_EQ(g.link(path.links.back()).bandwidth, 25);
  EXPECT_DOUBLE_EQ(path.bandwidth, 24);
  EXPECT_EQ(g.node(nics_of_gpus(g)[0].port).name, "mlx5_3");
}

/// A machine at rest: the GPU's link, at both ends, and a NIC that no driver has.
TEST_F(Tree, IdleGpusAndUnusedNics) {
  file("sys/devices/system/node/node0/cpumap", "f");
  const std::string port = "pci0000:10/0000:10:01.0", gpu = port + "/0000:11:00.0";
  device(port, "0x060400", "0x1022", "0");
  device(gpu, "0x030200", "0x10de", "0");
  device("pci0000:10/0000:10:02.0", "0x060400", "0x1022", "0");
  device("pci0000:10/0000:10:02.0/0000:12:00.0", "0x020000", "0x14e4", "0");
  for (const std::string& end : {port, gpu}) {
    file("sys/devices/" + end + "/current_link_speed", "2.5 GT/s PCIe");
    file("sys/devices/" + end + "/max_link_width", "16");
  }
  file("sys/devices/" + port + "/max_link_speed", "16.0 GT/s PCIe");
  file("sys/devices/" + gpu + "/max_link_speed", "32.0 GT/s PCIe");
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_DOUBLE_EQ(g.path(g.gpus()[0], g.find("numa0")).bandwidth, 24) << "the slot's 16 GT/s";
  EXPECT_TRUE(std::ranges::any_of(g.unseen, [](auto& u) { return u.starts_with("NVLink"); }));
  const Graph again = graph_of_text(to_nccl_xml(r));
  EXPECT_TRUE(again.doubts.empty()) << again.doubts.front().what;
  EXPECT_TRUE(again.all(NodeKind::nic).empty());
}

TEST_F(Tree, DevicesThatDoNotSayWhatTheyAre) {
  file("sys/devices/system/node/node0/cpumap", "f");
  const auto put = [&](const std::string& id, const char* vendor, const char* number) {
    device("pci0000:10/" + id, "", vendor, "0");
    file("sys/devices/pci0000:10/" + id + "/device", number);
  };
  put("0000:10:01.0", "0x10de", "0x2330");
  put("0000:10:02.0", "0x15b3", "0x1021");
  put("0000:10:03.0", "0x8086", "0x1234");  // nobody knows it
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_EQ(g.node(g.gpus()[0]).model, "H100 SXM5");
  EXPECT_EQ(std::ranges::count_if(
                g.doubts, [](auto& d) { return d.what.find("class says nothing") != d.what.npos; }),
            2);
}

TEST_F(Tree, Kfd) {
  file("nodes/0/properties", "cpu_cores_count 8\nsimd_count 0");
  for (int i = 1; i <= 2; ++i) {
    const std::string node = fmt::format("nodes/{}/", i);
    file(node + "properties",
         fmt::format("cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\n"
                     "vendor_id 4098\ndevice_id 29711\nlocation_id {}\ndomain 0",
                     0x6300 * i));
    file(node + "io_links/0/properties", fmt::format("type 2\nnode_from {}\nnode_to 0", i));
    file(node + "io_links/1/properties",
         fmt::format("type 11\nnode_from {}\nnode_to {}\nmax_bandwidth 50000", i, 3 - i));
  }
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  ASSERT_EQ(g.gpus().size(), 2u);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "XG1");
  EXPECT_EQ(g.node(g.gpus()[0]).model, "MI210");
  EXPECT_EQ(r.devices[0].gpu->sm, 104);
}

/// Links that lead to themselves, and around.
TEST_F(Tree, LoopsOfLinks) {
  file("sys/devices/system/node/online", "0");
  link("sys/bus/pci/devices/0000:01:00.0", "0000:01:00.0");
  link("sys/bus/pci/devices/0000:02:00.0", "../../../bus");
  link("sys/bus/pci/devices/0000:03:00.0", "../../../devices/pci0000:00/0000:03:00.0/0000:03:00.0");
  link("sys/class/net/eth0", "../net");
  link("sys/class/infiniband/mlx5_0", "mlx5_0");
  Records r = read_records(folder.path());
  EXPECT_TRUE(graph_of(r).gpus().empty());
}

TEST_F(Tree, ThisMachine) {
  Records r = discover_records();
  const Graph g = graph_of(r);
  EXPECT_GE(g.all(NodeKind::numa).size(), 1u);
  EXPECT_GE(r.cpus.front().cores, 1);
}

// --- What is no topology
// ---------------------------------------------------------------------------

TEST(Bad, TextsAreRefusedWithTheirLine) {
  EXPECT_SAYS(refusal(""), "is empty");
  EXPECT_SAYS(refusal("hello"), "sample:1");
  EXPECT_SAYS(refusal("<system version=\"1\">\n<cpu\n"), "sample:");
  EXPECT_SAYS(refusal("<a/>"), "expected <system>, found <a>");
  EXPECT_SAYS(refusal("<!-- only this -->"), "expected an element");
  EXPECT_SAYS(refusal("\n\n<system version=\"1\"/>"), "sample:3: expected <cpu>");
  EXPECT_SAYS(refusal("<topology version=\"2.0\"/>"), "Machine");
  EXPECT_SAYS(refusal(std::string("<system>\0</system>", 18)), "binary");
}

TEST(Bad, BombsAndTowers) {
  std::string bomb = "<?xml version=\"1.0\"?>\n<!DOCTYPE lolz [<!ENTITY lol \"lol\">";
  for (int i = 1; i < 10; ++i) {
    bomb += fmt::format("<!ENTITY lol{0} \"&lol{1};&lol{1};\">", i,
                        i == 1 ? "" : std::to_string(i - 1));
  }
  bomb += "]>\n<system version=\"1\"><cpu numaid=\"&lol9;\"/></system>";
  EXPECT_SAYS(refusal(bomb), "entities");
  std::string tower = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100'000; ++i) tower += "<pci busid=\"0000:01:00.0\">";
  EXPECT_NE(refusal(tower), "");  // not closed
  for (int i = 0; i < 100'000; ++i) tower += "</pci>";
  EXPECT_SAYS(refusal(tower + "</cpu></system>"), "in each other");
}

TEST(Bad, ManyElementsAreNoReasonToStop) {
  std::string wide = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100'000; ++i) {
    wide += fmt::format("<pci busid=\"{:04x}:{:02x}:{:02x}.0\" class=\"0x060400\"/>", i >> 13,
                        i >> 5 & 0xff, i & 0x1f);
  }
  const auto start = std::chrono::steady_clock::now();
  Records records = records_of(wide + "</cpu></system>", "wide");
  EXPECT_EQ(inventory_of(records).pci, 100'000);
  EXPECT_GE(graph_of(records).nodes().size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Bad, ManyHostsAndManyProcessors) {
  std::string hosts = "<system version=\"1\">", processors = hosts;
  for (int i = 0; i < 50'000; ++i) {
    hosts += fmt::format("<cpu numaid=\"0\" host_hash=\"0x{:x}\"/>", i);
    processors += fmt::format("<cpu numaid=\"{}\"/>", i);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(graph_of_text(hosts + "</system>").hosts(), 50'000);
  EXPECT_EQ(graph_of_text(processors + "</system>").all(NodeKind::numa).size(), 50'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

/// Each of many hosts has its sockets joined, the last one too.
TEST(Nccl, SocketsOfManyHosts) {
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

TEST(Bad, TwoMachinesInOneFile) {
  // The same host twice: what is there twice is named, and counts once.
  const Graph g = graph_of_text(std::string(kMesh) + kMesh);
  EXPECT_EQ(g.gpus().size(), 4u);
  EXPECT_EQ(g.hosts(), 1);
  EXPECT_FALSE(g.doubts.empty());
}

TEST(Bad, FilesThatAreNone) {
  TemporaryFolder folder;
  const auto refused = [](const std::string& path) -> std::string {
    try {
      read_records(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_SAYS(refused(folder.path() + "/none"), "cannot open");
  EXPECT_SAYS(refused(folder.path()), "neither sys/");
  EXPECT_SAYS(refused("/dev/zero"), "no regular file");
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_SAYS(refused(pipe), "no regular file");
  const std::string large = folder.path() + "/large";
  const int fd = open(large.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(ftruncate(fd, 100 << 20), 0);
  close(fd);
  EXPECT_SAYS(refused(large), "MiB");
}

TEST(Bad, ValuesAreNamedAndLeftOut) {
  Records r = records_of(
      "<system version=\"7\"><cpu numaid=\"x\">\n<pci busid=\"nowhere\" class=\"0x030200\" "
      "link_speed=\"fast\" link_width=\"-4\"><gpu dev=\"99999999999\"/></pci></cpu></system>",
      "odd");
  const Graph g = graph_of(r);
  std::string all;
  for (const Doubt& d : g.doubts) all += d.what + "\n";
  for (const char* part : {"version 7", "numaid=\"x\"", "odd:2: busid=\"nowhere\"",
                           "link_speed=\"fast\"", "-4 lanes", "dev=\"99999999999\""}) {
    EXPECT_SAYS(all, part);
  }
  EXPECT_EQ(g.gpus().size(), 1u);
}

TEST(Bad, UnicodeIsNoTrouble) {
  std::string text = kMesh;
  text.replace(text.find("mlx5_0"), 6, "\xe2\x98\x83\xff&gt;");
  const Graph g = graph_of_text(text);
  for (const Node& n : g.nodes()) {
    for (const char c : n.name) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

}  // namespace
}  // namespace tutti::topology

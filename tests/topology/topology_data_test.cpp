// Real topology files (tests/topology/topology_data.h): read as others read them, and written as
// they were.
#include "tests/topology/topology_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "tests/support/nccl_graphs.h"
#include "tests/support/temporary_folder.h"
#include "tests/topology/topology_file_checks.h"
#include "topology/discover.h"
#include "topology/nics.h"
#include "topology/show/json.h"
#include "topology/show/text.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

std::string row_of(const std::string& file, const Inventory& n) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", file, n.version,
                     n.elements, n.hosts, n.cpus, n.pci, n.gpu_elements, n.gpus_by_class_only,
                     n.nic_elements, n.nic_pci_by_class, n.nets, n.net_speeds, n.nvlink_elements,
                     n.nvlink_links, n.nvswitch_targets, n.xgmi_elements, n.xgmi_links,
                     n.c2c_elements);
}

std::string file_named(const std::string& folder, const std::string& start) {
  for (const std::string& f : topology_files(folder)) {
    if (base(f).starts_with(start)) return f;
  }
  ADD_FAILURE() << "no " << start;
  return "";
}

Graph graph_of_file(const std::string& path) {
  Records records = read_records(path);
  return graph_of(records);
}

TEST(NcclFiles, HaveTheExpectedInventory) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  std::ifstream csv(topology_data() + "/topology/expected/nccl-xml-inventory.csv");
  std::string line;
  std::getline(csv, line);
  int files = 0;
  while (std::getline(csv, line)) {
    const std::string file = line.substr(0, line.find(','));
    const Records r = read_records(topology_data() + "/topology/nccl-xml/" + file);
    EXPECT_EQ(row_of(file, inventory_of(r)), line);
    ++files;
  }
  EXPECT_GE(files, 40);
}

TEST(NcclFiles, ComeBackAsTheyWere) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  for (const std::string& file : topology_files("nccl-xml")) {
    const Records first = read_records(file);
    const Records second = records_of(to_nccl_xml(first), "again");
    EXPECT_EQ(row_of("", inventory_of(first)), row_of("", inventory_of(second))) << base(file);
    // And what was repaired needs no second repair.
    Records repaired = first;
    graph_of(repaired);
    Records again = records_of(to_nccl_xml(repaired), "again");
    const Graph g = graph_of(again);
    for (const Doubt& d : g.doubts) {
      const bool stays = d.what.find("several devices") != std::string::npos ||
                         d.what.find("believed") != std::string::npos;
      EXPECT_TRUE(stays) << base(file) << ": " << d.what;
    }
  }
}

TEST(NcclFiles, MakeValidGraphs) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  for (const char* folder : {"nccl-xml", "hwloc-xml"}) {
    for (const std::string& file : topology_files(folder)) {
      Records records = read_records(file);
      const Inventory n = inventory_of(records);
      const Graph g = graph_of(records);
      expect_valid(g);
      const int expected = n.gpu_elements > 0 ? n.gpu_elements : n.gpus_by_class_only;
      if (std::string(folder) == "nccl-xml") {
        EXPECT_EQ(static_cast<int>(g.gpus().size()), expected) << base(file);
      }
      EXPECT_FALSE(tree_text(g).empty());
      EXPECT_FALSE(to_json(g, n).empty());
    }
  }
}

TEST(NcclFiles, OfKnownMachinesHaveTheirBandwidth) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const auto out = [](const Graph& g, int gpu) {
    double sum = 0;
    for (const int l : g.out(gpu))
      sum += g.link(l).kind == LinkKind::nvlink ? g.link(l).bandwidth : 0;
    return sum;
  };
  for (const std::string& file : topology_files("nccl-xml")) {
    // All GPUs of these have the same NVLink bandwidth, whatever their files say.
    const std::map<std::string, double> same{{"perlmutter", 240},
                                             {"hgx-h200", 18 * 20.6},
                                             {"gb300", 18 * 40.1},
                                             {"oci-BM.GPU.H100", 18 * 20.6},
                                             {"azure-class-8xB200", 18 * 40.1},
                                             {"2xA100PCIe80", 240},
                                             {"azure-NC48ads", 240}};
    for (const auto& [start, bandwidth] : same) {
      if (!base(file).starts_with(start)) continue;
      const Graph g = graph_of_file(file);
      for (const int gpu : g.gpus()) EXPECT_NEAR(out(g, gpu), bandwidth, 1e-6) << base(file);
    }
  }
  const Graph asymmetric = graph_of_file(file_named("nccl-xml", "2xA100PCIe80-ASYMMETRIC"));
  ASSERT_EQ(asymmetric.doubts.size(), 1u);
  EXPECT_NE(asymmetric.doubts[0].what.find("12 are taken"), std::string::npos);
  // The real port, not one of 60 virtual ones.
  const Graph rtx = graph_of_file(file_named("nccl-xml", "4xRTX4090"));
  for (const NicChoice& c : nics_of_gpus(rtx)) {
    ASSERT_GE(c.port, 0);
    EXPECT_TRUE(rtx.node(c.port).bus.has_value());
  }
  // 16 ports for eight GPUs: each one of its own, near it.
  const Graph oci = graph_of_file(file_named("nccl-xml", "oci-BM.GPU.H100"));
  std::set<int> used;
  for (const NicChoice& c : nics_of_gpus(oci)) {
    EXPECT_LE(c.path.near, Near::pxb);
    used.insert(c.port);
  }
  EXPECT_EQ(used.size(), 8u);
}

TEST(GraphFiles, AreRead) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  for (const std::string& file : topology_files("nccl-graph-xml")) {
    const NcclGraphs all = read_nccl_graphs(XmlSource(read_file(file), base(file)));
    EXPECT_TRUE(all.doubts.empty()) << all.doubts.front().what;
    ASSERT_FALSE(all.graphs.empty());
    for (const auto& c : all.graphs.front().channels) EXPECT_GE(c.gpus.size(), 2u);
  }
}

// --- hwloc ---------------------------------------------------------------------------------------

/// What libhwloc finds in a file, where it can read it.
struct ByHwloc {
  bool read = false;
  int packages = 0, domains = 0;
  std::set<std::string> gpus, nics;
};

ByHwloc by_hwloc(const std::string& file) {
  ByHwloc found;
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return found;
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_set_xml(t, file.c_str()) == 0 && hwloc_topology_load(t) == 0) {
    found.read = true;
    found.packages = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));) {
      found.domains += hwloc_bitmap_iszero(o->cpuset) ? 0 : 1;
    }
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_pcidev(t, o));) {
      const auto& p = o->attr->pcidev;
      const std::string bus =
          fmt::format("{:04x}:{:02x}:{:02x}.{:x}", p.domain, p.bus, p.dev, p.func);
      const bool vendor = p.vendor_id == 0x10de || p.vendor_id == 0x1002;
      if (vendor && is_gpu_class(static_cast<std::uint32_t>(p.class_id) << 8))
        found.gpus.insert(bus);
      if (p.class_id >> 8 == 0x02) found.nics.insert(bus);
    }
  }
  hwloc_topology_destroy(t);
  return found;
}

TEST(HwlocFiles, AreReadAsHwlocReadsThem) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int compared = 0;
  for (const std::string& file : topology_files("hwloc-xml")) {
    Records r = read_records(file);
    const ByHwloc expected = by_hwloc(file);
    if (!expected.read) continue;  // format 3.0 is too new for the library
    ++compared;
    std::set<int> packages;
    for (const CpuRecord& c : r.cpus) packages.insert(c.package);
    EXPECT_EQ(static_cast<int>(r.cpus.size()), std::max(1, expected.domains)) << base(file);
    EXPECT_EQ(static_cast<int>(packages.size()), expected.packages) << base(file);
    const Graph g = graph_of(r);
    std::set<std::string> gpus, nics;
    for (const Node& n : g.nodes()) {
      if (n.kind == NodeKind::gpu && n.bus) gpus.insert(text_of(*n.bus));
      if (n.kind == NodeKind::nic && n.bus) nics.insert(text_of(*n.bus));
    }
    EXPECT_EQ(gpus, expected.gpus) << base(file);
    EXPECT_TRUE(std::ranges::includes(nics, expected.nics)) << base(file);
  }
  EXPECT_GE(compared, 8);
}

TEST(HwlocFiles, OfADgx2HaveItsNvlink) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const Graph g = graph_of_file(file_named("hwloc-xml", "nvidiaDGX2"));
  const auto gpus = g.gpus();
  ASSERT_EQ(gpus.size(), 16u);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near_text(g, g.path(gpus[0], gpus[15])), "NV6");
}

// --- sysfs ---------------------------------------------------------------------------------------

class SysfsTrees : public ::testing::Test {
 protected:
  std::string unpacked(const std::string& archive) {
    const std::string to = folder.path() + "/" + base(archive);
    std::filesystem::create_directory(to);
    const std::string command = fmt::format("tar -xf '{}' -C '{}' 2>/dev/null", archive, to);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return std::filesystem::directory_iterator(to)->path();
  }
  TemporaryFolder folder;
};

TEST_F(SysfsTrees, AreReadAsLstopoPrintsThem) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int compared = 0;
  for (const std::string& file : topology_files("sysfs")) {
    const std::string console = file.substr(0, file.find(".tar")) + ".console";
    if (!file.ends_with(".tar.bz2") || !std::filesystem::exists(console)) continue;
    ++compared;
    Records r = read_records(unpacked(file));
    const Graph g = graph_of(r);
    expect_valid(g);
    std::ifstream stream(console);
    int domains = 0;
    std::set<std::string> nics, gpus;
    for (std::string line; std::getline(stream, line);) {
      domains += line.find("NUMANode L#") != std::string::npos ? 1 : 0;
      const std::size_t bus = line.find("busid="), kind = line.find("class=");
      if (bus == std::string::npos || kind == std::string::npos) continue;
      const std::string id = line.substr(bus + 6, line.find(' ', bus) - bus - 6);
      if (line.substr(kind + 6, 2) == "02") nics.insert(id);
    }
    EXPECT_EQ(static_cast<int>(r.cpus.size()), std::max(1, domains)) << base(file);
    std::set<std::string> found;
    for (const Node& n : g.nodes()) {
      if (n.kind == NodeKind::nic && n.bus) found.insert(text_of(*n.bus));
    }
    EXPECT_EQ(found, nics) << base(file);
  }
  EXPECT_GE(compared, 4);
}

TEST_F(SysfsTrees, OfKfdHaveXgmi) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  Records r =
      read_records(unpacked(file_named("sysfs", "rocm-kfd__topo-mi210")) + "/topo-mi210-xgmi-pcie");
  const Graph g = graph_of(r);
  const auto gpus = g.gpus();
  ASSERT_EQ(gpus.size(), 8u);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near_text(g, g.path(gpus[0], gpus[3])), "XG1");
  EXPECT_EQ(near_text(g, g.path(gpus[0], gpus[4])), "SYS");
  Records twice = read_records(unpacked(file_named("sysfs", "rocm-kfd__topology-parsing")) +
                               "/topology-parsing");
  const Graph one = graph_of(twice);
  EXPECT_EQ(one.gpus().size(), 1u);
  EXPECT_EQ(one.doubts.size(), 1u);
}

// --- nvidia-smi ----------------------------------------------------------------------------------

TEST(SmiFiles, PrintTheMatrixThatTheyAre) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  for (const std::string& file : topology_files("smi")) {
    const std::string text = read_file(file);
    if (text.find("OK") != std::string::npos) {
      EXPECT_THROW(read_records(file), Error) << base(file);
      continue;
    }
    const Graph g = graph_of_file(file);
    std::istringstream in(text), out(matrix_text(g));
    std::string a, b;
    std::getline(in, a);
    std::getline(out, b);
    const std::size_t columns = g.gpus().size() + g.all(NodeKind::port).size();
    for (std::size_t row = 0; row < columns; ++row) {
      std::getline(in, a);
      std::getline(out, b);
      std::istringstream given(a), made(b);
      for (std::size_t i = 0; i <= columns; ++i) {
        std::string x, y;
        given >> x;
        made >> y;
        EXPECT_EQ(y, x) << base(file) << " row " << row << " column " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::topology

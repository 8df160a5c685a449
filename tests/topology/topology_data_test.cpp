// Real topology files (tests/topology/topology_data.h): read as others read them, written as they
// were, and each with one fault at a time.
#include "tests/topology/topology_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <pugixml.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "topology/discover.h"
#include "topology/nics.h"
#include "topology/read_nccl.h"
#include "topology/show/json.h"
#include "topology/show/text.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

std::string base(const std::string& path) { return std::filesystem::path(path).filename(); }

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

/// What every graph has to be, whatever it was made from.
void expect_valid(const Graph& g) {
  for (const Link& l : g.links()) {
    ASSERT_TRUE(std::isfinite(l.bandwidth) && l.bandwidth > 0);
    ASSERT_TRUE(std::isfinite(l.latency) && l.latency >= 0);
    ASSERT_TRUE(l.from != l.to && l.from >= 0 && l.to >= 0);
  }
  for (int n = 0; n < static_cast<int>(g.nodes().size()); ++n) ASSERT_LT(g.node(n).parent, n);
  const auto gpus = g.gpus();
  if (gpus.empty()) return;
  const auto paths = g.paths(gpus.front());
  for (const int other : gpus) {
    if (other == gpus.front() || g.node(other).host != g.node(gpus.front()).host) continue;
    ASSERT_NE(paths[static_cast<std::size_t>(other)].near, Near::apart);
  }
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

TEST(NcclFiles, KnownMachines) {
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

TEST(HwlocFiles, NvlinkOfDgx2) {
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

TEST_F(SysfsTrees, Kfd) {
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

// --- Faults --------------------------------------------------------------------------------------

/// What is said of which record, without lines, which move when an element goes: "gpu0, gpu1 say
/// so" is two of them.
std::set<std::string> said(const Graph& g) {
  std::set<std::string> all;
  for (const Doubt& d : g.doubts) {
    const std::string text = d.what.substr(d.what.find(": ") + 2);
    std::size_t verb = std::string::npos;
    for (const char* v : {" has ", " says ", " is ", " does ", " calls ", " would "}) {
      verb = std::min(verb, text.find(v));
    }
    std::string names = text.substr(0, verb);
    const std::string rest = verb == std::string::npos ? "" : text.substr(verb);
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t end = std::min(names.find(", ", at), names.size());
      all.insert(names.substr(at, end - at) + rest);
      at = end + 2;
    }
  }
  return all;
}

std::string text_of_xml(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "", pugi::format_raw | pugi::format_no_declaration);
  return stream.str();
}

/// What rings carry: inside of the host, and through it where it has ports.
struct Carried {
  double inside = 0, through = 0;

  explicit Carried(const Graph& g) {
    if (g.gpus().size() < 2) return;
    LanesRequest request;
    inside = find_lanes(g, 0, request).bandwidth;
    request.several_hosts = true;
    if (!data_ports(g, 0).empty()) through = find_lanes(g, 0, request).bandwidth;
  }
};

/// A file as it is, and what is said of it with one fault in it.
class Faulty {
 public:
  explicit Faulty(const std::string& file)
      : text(read_file(file)), healthy_(graph(text)), before_(said(healthy_)), carried_(healthy_) {
    if (text.starts_with('<')) {
      EXPECT_TRUE(document.load_string(text.c_str())) << file;
    }
  }

  int new_doubts(const pugi::xml_document& changed) { return new_doubts(text_of_xml(changed)); }
  /// How many doubts are new. Plans stay valid, and have half of the bandwidth at least.
  int new_doubts(const std::string& changed) {
    const Graph g = graph(changed);
    expect_valid(g);
    int fresh = 0;
    shown.clear();
    for (const std::string& d : said(g)) {
      if (before_.contains(d)) continue;
      ++fresh;
      shown += (shown.empty() ? "" : " | ") + d;
    }
    gpus = static_cast<int>(g.gpus().size()) - static_cast<int>(healthy_.gpus().size());
    left = 1;
    if (alike(g, healthy_)) return fresh;
    const Carried carried(g);
    if (g.gpus().size() > 1 && carried_.inside > 0) left = carried.inside / carried_.inside;
    if (g.gpus().size() > 1 && carried_.through > 0) {
      left = std::min(left, carried.through / carried_.through);
    }
    return fresh;
  }

  std::string text;
  pugi::xml_document document;  // of XML
  std::string shown;            // the new doubts
  double left = 1;              // of the bandwidth
  int gpus = 0;                 // more than before

 private:
  /// Then plans are the same, and need not be made.
  static bool alike(const Graph& a, const Graph& b) {
    return a.nodes().size() == b.nodes().size() &&
           std::ranges::equal(a.links(), b.links(), [](const Link& x, const Link& y) {
             return x.from == y.from && x.to == y.to && x.kind == y.kind &&
                    std::abs(x.bandwidth - y.bandwidth) < 1e-9;
           });
  }
  static Graph graph(const std::string& text) {
    Records r = records_of(text, "file");
    return graph_of(r);
  }

  Graph healthy_;
  std::set<std::string> before_;
  Carried carried_;
};

constexpr double kLeft = 0.5 - 1e-9;

/// Each link of GPUs, in each file, dropped, zeroed, doubled, made asymmetric.
TEST(Faults, OfGpuLinksAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int faults = 0;
  for (const std::string& file : topology_files("nccl-xml")) {
    if (base(file).find("ASYMMETRIC") != std::string::npos) continue;  // it has a fault already
    Faulty faulty(file);
    for (const char* name : {"nvlink", "xgmi", "c2c"}) {
      const auto all = faulty.document.select_nodes(fmt::format("//{}", name).c_str());
      // Of hundreds that are alike, some.
      const std::size_t stride = std::max<std::size_t>(1, all.size() / 12);
      for (std::size_t i = 0; i < all.size(); i += stride) {
        pugi::xml_node node = all[i].node();
        pugi::xml_attribute count = node.attribute("count");
        const int healthy_count = count.as_int();
        for (const int value : {0, 2 * healthy_count, healthy_count + 1, -1}) {
          if (value < 0) {
            pugi::xml_document without;
            without.reset(faulty.document);
            auto same = without.select_nodes(fmt::format("//{}", name).c_str())[i].node();
            same.parent().remove_child(same);
            EXPECT_EQ(faulty.new_doubts(without), 1)
                << base(file) << " " << name << " " << i << " dropped: " << faulty.shown;
          } else {
            count.set_value(value);
            EXPECT_EQ(faulty.new_doubts(faulty.document), 1)
                << base(file) << " " << name << " " << i << " count " << value << ": "
                << faulty.shown;
            count.set_value(healthy_count);
          }
          EXPECT_GE(faulty.left, kLeft) << base(file) << " " << name << " " << i << ": " << value;
          ++faults;
        }
      }
    }
  }
  RecordProperty("faults", faults);
  EXPECT_GT(faults, 1000);
}

/// Speeds: of PCI links, and of ports.
TEST(Faults, OfSpeedsAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const std::string kOfNoLink = "link_speed of a host bridge dropped";
  std::map<std::string, std::pair<int, int>> found;  // by kind: named once, all
  for (const std::string& file : topology_files("nccl-xml")) {
    Faulty faulty(file);
    const auto attempt = [&](pugi::xml_node node, const char* attribute, const char* value,
                             const std::string& kind) {
      pugi::xml_attribute a = node.attribute(attribute);
      if (a.empty() || std::string(a.value()).empty()) return;
      const std::string was = a.value();
      if (was == value) return;
      a.set_value(value);
      const int n = faulty.new_doubts(faulty.document);
      a.set_value(was.c_str());
      auto& [once, all] = found[kind];
      once += n == 1 ? 1 : 0;
      ++all;
      EXPECT_LE(n, 1) << base(file) << " " << kind << ": " << faulty.shown;
      EXPECT_GE(faulty.left, kLeft) << base(file) << " " << kind << ": " << faulty.shown;
    };
    const auto pcis = faulty.document.select_nodes("//pci");
    const std::size_t stride = std::max<std::size_t>(1, pcis.size() / 8);
    for (std::size_t i = 0; i < pcis.size(); i += stride) {
      // A host bridge has no link: whatever its record says counts for nothing, and is not missed.
      const bool host_bridge =
          std::string(pcis[i].node().attribute("class").value()).starts_with("0x0600");
      attempt(pcis[i].node(), "link_speed", "", host_bridge ? kOfNoLink : "link_speed dropped");
      attempt(pcis[i].node(), "link_speed", "0 GT/s", "link_speed zero");
      attempt(pcis[i].node(), "link_width", "0", "link_width zero");
      attempt(pcis[i].node(), "link_width", "-16", "link_width negative");
    }
    for (const auto& net : faulty.document.select_nodes("//pci/nic/net")) {
      attempt(net.node(), "speed", "0", "speed zero");
      attempt(net.node(), "speed", "200000000", "speed in another unit");
    }
  }
  for (const auto& [kind, count] : found) {
    fmt::print("{}: {} of {} named\n", kind, count.first, count.second);
    EXPECT_EQ(count.first, kind == kOfNoLink ? 0 : count.second) << kind;
  }
}

/// Cells of matrices: of nvidia-smi's links, and of hwloc's bandwidths.
TEST(Faults, OfMatricesAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int faults = 0;
  const auto attempt = [&](const std::string& file, const std::regex& cell, std::size_t most,
                           auto&& values_of) {
    Faulty faulty(file);
    std::vector<std::smatch> cells(
        std::sregex_iterator(faulty.text.begin(), faulty.text.end(), cell), {});
    const std::size_t stride = std::max<std::size_t>(1, cells.size() / most);
    for (std::size_t i = 0; i < cells.size(); i += stride) {
      for (const std::string& value : values_of(cells[i].str())) {
        std::string changed = faulty.text;
        changed.replace(static_cast<std::size_t>(cells[i].position()), cells[i].str().size(),
                        value);
        EXPECT_EQ(faulty.new_doubts(changed), 1)
            << base(file) << " cell " << i << " is " << value << ": " << faulty.shown;
        EXPECT_GE(faulty.left, kLeft) << base(file) << " cell " << i << " is " << value;
        ++faults;
      }
    }
  };
  for (const std::string& file : topology_files("smi")) {
    if (read_file(file).find("OK") != std::string::npos) continue;
    attempt(file, std::regex("NV[0-9]+"), 7, [](const std::string& was) {
      const int links = std::stoi(was.substr(2));
      return std::vector<std::string>{"SYS", fmt::format("NV{}", 2 * links),
                                      fmt::format("NV{}", links + 1)};
    });
  }
  for (const std::string& file : topology_files("hwloc-xml")) {
    if (read_file(file).find("NVLinkBandwidth") == std::string::npos) continue;
    attempt(file, std::regex("\\b25000\\b"), 7, [](const std::string&) {
      return std::vector<std::string>{"0", "50000", "100"};
    });
  }
  RecordProperty("faults", faults);
  EXPECT_GT(faults, 50);
}

/// Whole elements: lost, and there twice. Where an element has others in it, these are as many
/// records; so here are those that have none, and GPUs' records with their links.
TEST(Faults, OfElementsAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  struct Seen {
    int faults = 0, silent = 0, once = 0;
  };
  std::map<std::string, Seen> seen;
  for (const std::string& file : topology_files("nccl-xml")) {
    if (base(file).find("ASYMMETRIC") != std::string::npos) continue;
    Faulty faulty(file);
    for (const std::string name : {"gpu", "net", "nvlink", "xgmi", "c2c"}) {
      const auto all = faulty.document.select_nodes(("//pci//" + name).c_str());
      const std::size_t stride = std::max<std::size_t>(1, all.size() / 4);
      for (std::size_t i = 0; i < all.size(); i += stride) {
        for (const bool twice : {false, true}) {
          pugi::xml_document changed;
          changed.reset(faulty.document);
          auto node = changed.select_nodes(("//pci//" + name).c_str())[i].node();
          if (twice) {
            node.parent().insert_copy_after(node, node);
          } else {
            node.parent().remove_child(node);
          }
          const int fresh = faulty.new_doubts(changed);
          Seen& s = seen[name + (twice ? " twice" : " lost")];
          ++s.faults;
          s.silent += fresh == 0 ? 1 : 0;
          s.once += fresh == 1 ? 1 : 0;
          EXPECT_LE(fresh, 1) << base(file) << " " << name << " " << i
                              << (twice ? " twice: " : ": ") << faulty.shown;
          EXPECT_EQ(faulty.gpus, 0) << base(file) << " " << name << " " << i;
          EXPECT_GE(faulty.left, kLeft) << base(file) << " " << name << " " << i
                                        << (twice ? " twice" : " lost") << ": " << faulty.shown;
        }
      }
    }
  }
  for (const auto& [kind, s] : seen) {
    fmt::print("{}: {} of {} named, {} silent\n", kind, s.once, s.faults, s.silent);
  }
}

}  // namespace
}  // namespace tutti::topology

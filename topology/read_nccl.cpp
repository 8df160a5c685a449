// NCCL's and RCCL's system XML (versions 1 and 2; NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). The reader
// is more generous than NCCL: it takes any number of elements in any order, and ignores unknown
// elements and attributes.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/number.h"
#include "topology/check.h"
#include "topology/constants.h"
#include "topology/readers.h"

namespace tutti::topology {
namespace {

using std::string_view;

class SystemReader {
 public:
  explicit SystemReader(const XmlSource& xml) : xml_(xml) {
    records_.source = xml.name();
    records_.elements = xml.elements();
  }

  Records read() {
    bool found = false;
    for (const pugi::xml_node& root : xml_.document().children("system")) {
      found = true;
      read_system(root);
    }
    if (!found) {
      xml_.refuse(xml_.document().first_child(),
                  xml_.elements() == 0
                      ? "expected <system>, found no element"
                      : fmt::format("expected <system>, found <{}>", printable(first_element())));
    }
    if (records_.cpus.empty()) {
      xml_.refuse(xml_.document().child("system"), "expected <cpu> in <system>, found none");
    }
    return std::move(records_);
  }

 private:
  std::string first_element() const {
    for (const pugi::xml_node& node : xml_.document().children()) {
      if (node.type() == pugi::node_element) return node.name();
    }
    return "";
  }

  void read_system(const pugi::xml_node& system) {
    const Attributes a(xml_, system, records_.doubts);
    records_.version = a.integer_or("version", 1);
    records_.format = fmt::format("NCCL system XML, version {}", records_.version);
    if (records_.version != 1 && records_.version != 2) {
      records_.doubts.push_back({fmt::format("{}: version {} is not known; it is read as version 2",
                                             xml_.origin(system).text(), records_.version)});
    }
    const std::size_t first_cpu = records_.cpus.size();
    first_hash_.clear();
    bool several = false;
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      const std::string hash = cpu.attribute("host_hash").value();
      if (hash.empty() || is_zero(hash)) continue;
      several = several || (!first_hash_.empty() && hash != first_hash_);
      if (first_hash_.empty()) first_hash_ = hash;
    }
    zero_is_none_ = !several && !first_hash_.empty();
    name_unknown(system, {"cpu", "pci"});
    for (const pugi::xml_node& cpu : system.children("cpu")) read_cpu(cpu);
    for (const pugi::xml_node& node : system.children()) {
      if (string_view(node.name()) == "pci") {
        // Without a processor above it: on the first one.
        if (records_.cpus.size() == first_cpu) continue;
        read_pci(node, static_cast<int>(first_cpu), -1);
      }
    }
  }

  /// Elements that nobody reads: of a newer version, misspelt, or in a place where they mean
  /// nothing. Each kind of them is one doubt.
  void name_unknown(const pugi::xml_node& node, std::initializer_list<string_view> known) {
    for (const pugi::xml_node& child : node.children()) {
      const string_view name = child.name();
      if (child.type() != pugi::node_element || std::ranges::find(known, name) != known.end()) {
        continue;
      }
      if (!unknown_.emplace(node.name(), name).second) continue;
      records_.doubts.push_back(
          {fmt::format("{}: <{}> in <{}> is not known; it is left out", xml_.origin(child).text(),
                       printable(name), printable(node.name()))});
    }
  }

  /// Zero says nothing where all others are of one host.
  std::string hash_of(const pugi::xml_node& cpu) const {
    const std::string hash = cpu.attribute("host_hash").value();
    return zero_is_none_ && is_zero(hash) ? "" : hash;
  }
  static bool is_zero(string_view hash) { return hash == "0x0" || hash == "0"; }

  /// Of a processor that does not say it, in a file where others do: the host of the one before, if
  /// that does not have such a NUMA domain already, else of the one after it.
  int host_of(const pugi::xml_node& cpu, int numa) {
    std::string hash = hash_of(cpu);
    if (hash.empty() && !first_hash_.empty()) {
      hash = first_hash_;
      const int before = records_.cpus.empty() ? -1 : records_.cpus.back().host;
      const std::string after = hash_of(cpu.next_sibling("cpu"));
      const bool taken = std::ranges::any_of(
          records_.cpus, [&](const CpuRecord& c) { return c.host == before && c.numa == numa; });
      if (before >= 0 && (!taken || after.empty())) {
        hash = records_.hosts[static_cast<std::size_t>(before)];
      } else if (!after.empty()) {
        hash = after;
      }
      records_.doubts.push_back({fmt::format(
          "{}: NUMA domain {} does not say of which host it is, unlike others; {} is taken",
          xml_.origin(cpu).text(), numa, printable(hash))});
    }
    const auto [at, is_new] = hosts_.try_emplace(hash, static_cast<int>(hosts_.size()));
    if (is_new) records_.hosts.push_back(hash);
    return at->second;
  }

  void read_cpu(const pugi::xml_node& node) {
    const Attributes a(xml_, node, records_.doubts);
    CpuRecord cpu;
    cpu.numa = a.integer_or("numaid", -1);
    cpu.host = host_of(node, cpu.numa);
    cpu.affinity = a.text("affinity");
    cpu.arch = a.text("arch");
    cpu.vendor = a.text("vendor");
    if (a.integer("familyid")) cpu.family = a.integer_or("familyid", 0);
    if (a.integer("modelid")) cpu.model = a.integer_or("modelid", 0);
    cpu.origin = xml_.origin(node);
    records_.cpus.push_back(cpu);
    name_unknown(node, {"pci", "nic"});
    read_children(node, static_cast<int>(records_.cpus.size()) - 1, -1);
  }

  void read_children(const pugi::xml_node& node, int cpu, int parent) {
    for (const pugi::xml_node& child : node.children()) {
      const string_view name = child.name();
      if (name == "pci") {
        read_pci(child, cpu, parent);
      } else if (name == "nic" && parent < 0) {
        DeviceRecord d;  // of no PCI device: virtual
        d.cpu = cpu;
        d.origin = xml_.origin(child);
        read_nic(child, d);
        records_.devices.push_back(std::move(d));
      }
    }
  }

  void read_pci(const pugi::xml_node& node, int cpu, int parent) {
    const Attributes a(xml_, node, records_.doubts);
    DeviceRecord d;
    d.cpu = cpu;
    d.parent = parent;
    d.origin = xml_.origin(node);
    d.bus = a.bus_id("busid");
    if (!d.bus && a.text("busid").empty()) {
      records_.doubts.push_back(
          {fmt::format("{}: <pci> without busid; it gets none", d.origin.text())});
    }
    d.pci_class = static_cast<std::uint32_t>(a.integer("class").value_or(0)) & 0xffffff;
    d.vendor = a.text("vendor");
    d.device = a.text("device");
    d.subsystem_vendor = a.text("subsystem_vendor");
    d.subsystem_device = a.text("subsystem_device");
    d.speed_text = a.text("link_speed");
    d.speed = transfers_per_second(d.speed_text);
    if (a.integer("link_width")) d.width = a.integer_or("link_width", 0);
    name_unknown(node, {"pci", "gpu", "nic", "pcilink"});
    for (const pugi::xml_node& child : node.children()) {
      const string_view name = child.name();
      if (name == "gpu") {
        read_gpu(child, d);
      } else if (name == "nic") {
        read_nic(child, d);
      } else if (name == "pcilink") {
        const Attributes link(xml_, child, records_.doubts);
        if (const auto target = link.bus_id("target")) d.peer_switches.push_back(*target);
      }
    }
    records_.devices.push_back(std::move(d));
    read_children(node, cpu, static_cast<int>(records_.devices.size()) - 1);
  }

  /// A GPU beside another one in the same device, with a number of its own.
  static bool is_other_part(const DeviceRecord& device, const Attributes& gpu) {
    const int number = gpu.integer_or("dev", -1);
    const bool divisible = device.vendor == "0x10de" || shared_memory(model_of(device)) > 0;
    return divisible && device.bus && number >= 0 && device.gpu->dev >= 0 &&
           number != device.gpu->dev;
  }

  void add_part(const pugi::xml_node& node, DeviceRecord& device) {
    const int known = ++parts_[*device.bus];
    if (device.vendor == "0x10de" && !device.gpu->mig) {
      device.gpu->mig = true;
      records_.unseen.push_back(
          fmt::format("NVLink of {}: several GPUs are in it, so they are taken as MIG's instances, "
                      "which have none",
                      text_of(*device.bus)));
    }
    DeviceRecord part = device;
    part.bus->function = static_cast<std::uint8_t>(known & 0xf);
    part.nets.clear();
    part.gpu.reset();
    read_gpu(node, part);
    part.gpu->mig = device.gpu->mig;
    records_.devices.push_back(std::move(part));
  }

  void read_gpu(const pugi::xml_node& node, DeviceRecord& device) {
    const Attributes a(xml_, node, records_.doubts);
    if (device.gpu && is_other_part(device, a)) {
      add_part(node, device);
      return;
    }
    if (device.gpu) {
      records_.doubts.push_back(
          {fmt::format("{}: a second <gpu> in {}; the first one counts", xml_.origin(node).text(),
                       device.bus ? text_of(*device.bus) : "<pci>")});
      return;
    }
    GpuRecord g;
    g.dev = a.integer_or("dev", -1);
    g.rank = a.integer_or("rank", -1);
    g.sm = a.integer_or("sm", 0);
    g.gcn = a.text("gcn");
    g.arch = a.text("arch");
    if (a.integer("gdr")) g.gdr = a.integer_or("gdr", 0);
    g.origin = xml_.origin(node);
    name_unknown(node, {"nvlink", "xgmi", "c2c"});
    for (const pugi::xml_node& child : node.children()) {
      const string_view name = child.name();
      const Attributes l(xml_, child, records_.doubts);
      GpuLinkRecord link;
      if (name == "nvlink" || name == "xgmi") {
        link.kind = name == "xgmi" ? GpuLinkRecord::Kind::xgmi : GpuLinkRecord::Kind::nvlink;
        link.target = parse_bus_id(trimmed(l.text("target")));  // none: check_gpu_links.cpp says so
        link.target_class = static_cast<std::uint32_t>(l.integer("tclass").value_or(0)) & 0xffffff;
      } else if (name == "c2c") {
        link.kind = GpuLinkRecord::Kind::c2c;
        link.bandwidth = l.integer("bw").value_or(0);
      } else {
        continue;
      }
      link.count = l.integer("count").value_or(0);
      link.origin = xml_.origin(child);
      g.links.push_back(link);
    }
    device.gpu = std::move(g);
  }

  void read_nic(const pugi::xml_node& node, DeviceRecord& device) {
    device.has_nic = true;
    ++device.nic_elements;
    name_unknown(node, {"net"});
    for (const pugi::xml_node& child : node.children("net")) {
      const Attributes a(xml_, child, records_.doubts);
      NetRecord net;
      net.name = a.text("name");
      net.dev = a.integer_or("dev", -1);
      net.speed = a.integer("speed");
      net.latency = a.number("latency");
      net.port = a.integer_or("port", 0);
      net.guid = a.text("guid");
      net.max_connections = a.integer("maxconn");
      if (a.integer("gdr")) net.gdr = a.integer_or("gdr", 0);
      if (a.integer("coll")) net.coll = a.integer_or("coll", 0);
      net.origin = xml_.origin(child);
      device.nets.push_back(std::move(net));
    }
  }

  const XmlSource& xml_;
  Records records_;
  std::map<std::string, int> hosts_;                       // index by name
  std::map<BusId, int> parts_;                             // of divided GPUs, beside the first
  std::set<std::pair<std::string, std::string>> unknown_;  // elements, by the one that they are in
  std::string first_hash_;  // of this <system>; "": nobody says a host
  bool zero_is_none_ = false;
};

}  // namespace

Records read_nccl_system(const XmlSource& xml) { return SystemReader(xml).read(); }

}  // namespace tutti::topology

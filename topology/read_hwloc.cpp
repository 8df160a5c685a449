// hwloc's XML. The reader parses the text itself and does not use libhwloc: Debian 12's (2.9)
// refuses format 3.0, and Tutti cannot promise what a hostile file does there. Objects nest as the
// machine does: I/O hangs below the object that it is near. A first walk finds NUMA domains and
// packages, a second one the PCI devices; distances come last, as they refer to objects by number.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "core/cpu_mask.h"
#include "core/number.h"
#include "topology/constants.h"
#include "topology/readers.h"

namespace tutti::topology {
namespace {

using std::string_view;

/// What an <object> is for locality.
struct Near {
  int cpu = -1;
};

class HwlocReader {
 public:
  explicit HwlocReader(const XmlSource& xml) : xml_(xml) {
    records_.source = xml.name();
    records_.elements = xml.elements();
  }

  Records read() {
    const pugi::xml_node root = xml_.document().child("topology");
    if (!root) xml_.refuse(xml_.document().first_child(), "expected <topology>");
    const string_view version = root.attribute("version").value();
    third_format_ = version.starts_with("3");
    records_.format =
        fmt::format("hwloc XML, format {}", version.empty() ? "1.x" : printable(version));
    machine_ = root.child("object");
    if (!machine_) xml_.refuse(root, "expected <object type=\"Machine\"> in <topology>");
    records_.hosts.push_back(info(machine_, "HostName", root));
    arch_ = info(machine_, "Architecture", root);
    find_packages(machine_);
    find_domains(machine_);
    if (records_.cpus.empty()) {
      CpuRecord cpu;
      cpu.origin = xml_.origin(machine_);
      cpu.affinity = mask_of(members_of_mask(machine_.attribute("cpuset").value()));
      describe(cpu, members_of_mask(machine_.attribute("cpuset").value()));
      records_.cpus.push_back(cpu);
    }
    find_devices(machine_, Near{}, -1);
    complete_nics();
    prune();
    for (const char* kind : {"distances2", "distances2hetero"}) {
      for (const pugi::xml_node& d : root.children(kind)) {
        read_hwloc_links(xml_, d, by_number_, records_);
      }
    }
    const auto linked = [](const DeviceRecord& d) { return d.gpu && !d.gpu->links.empty(); };
    if (gpus_ > 1 && std::ranges::none_of(records_.devices, linked)) {
      records_.unseen.emplace_back(
          "links between GPUs: hwloc writes them where it was built with NVML or ROCm SMI");
    }
    records_.unseen.emplace_back("hwloc's XML has no speed of network ports");
    return std::move(records_);
  }

 private:
  std::string info(const pugi::xml_node& object, string_view name,
                   const pugi::xml_node& also = {}) const {
    for (const pugi::xml_node& i : object.children("info")) {
      if (i.attribute("name").value() == name) return i.attribute("value").value();
    }
    return also ? info(also, name) : "";
  }

  static string_view type_of(const pugi::xml_node& object) {
    return object.attribute("type").value();
  }

  void find_packages(const pugi::xml_node& object) {
    const string_view type = type_of(object);
    if (type == "Package" || type == "Socket") {
      packages_.push_back({object, members_of_mask(object.attribute("cpuset").value())});
    }
    records_.caches += type == "L3Cache" || (type == "Cache" &&
                                             string_view(object.attribute("depth").value()) == "3")
                           ? 1
                           : 0;
    for (const pugi::xml_node& child : object.children("object")) find_packages(child);
  }

  void find_domains(const pugi::xml_node& object) {
    if (type_of(object) == "NUMANode") {
      const auto cores = members_of_mask(object.attribute("cpuset").value());
      // Memory of GPUs, and memory without processors, is a NUMA domain, too; no processor.
      if (!cores.empty()) {
        const Attributes a(xml_, object, records_.doubts);
        CpuRecord cpu;
        cpu.numa = a.integer_or("os_index", -1);
        cpu.affinity = mask_of(cores);
        cpu.origin = xml_.origin(object);
        describe(cpu, cores);
        records_.cpus.push_back(cpu);
      }
    }
    for (const pugi::xml_node& child : object.children("object")) find_domains(child);
  }

  /// What the package of these cores says of the processor.
  void describe(CpuRecord& cpu, const std::set<int>& cores) {
    cpu.cores = static_cast<int>(cores.size());
    cpu.arch = arch_;
    for (std::size_t p = 0; p < packages_.size(); ++p) {
      const pugi::xml_node& object = packages_[p].object;
      const std::set<int>& own = packages_[p].cores;
      if (!std::ranges::any_of(cores, [&](int c) { return own.contains(c); })) continue;
      cpu.package = static_cast<int>(p);
      cpu.vendor = info(object, "CPUVendor", machine_);
      const auto family = parse_number<std::int64_t>(info(object, "CPUFamilyNumber", machine_));
      const auto model = parse_number<std::int64_t>(info(object, "CPUModelNumber", machine_));
      if (family) cpu.family = static_cast<int>(*family & 0xffff);
      if (model) cpu.model = static_cast<int>(*model & 0xffff);
      if (cpu.arch.empty() && !cpu.vendor.empty()) cpu.arch = "x86_64";
      break;
    }
  }

  /// The processor that an object is near to: the first NUMA domain of its set that has cores.
  int nearest(const pugi::xml_node& object) const {
    const char* set = object.attribute("nodeset").value();
    const auto domains = members_of_mask(set);
    for (std::size_t c = 0; c < records_.cpus.size(); ++c) {
      if (domains.contains(records_.cpus[c].numa)) return static_cast<int>(c);
    }
    return -1;
  }

  void find_devices(const pugi::xml_node& object, Near near, int parent) {
    const string_view type = type_of(object);
    if (type == "Bridge" || type == "PCIDev") {
      parent = read_device(object, near, parent);
    } else if (type == "OSDev") {
      read_os_device(object, parent);
    } else if (type == "Machine" || object.attribute("nodeset")) {
      // The whole machine is near to all domains, so to none in particular.
      const int cpu = nearest(object);
      if (cpu >= 0 && (type != "Machine" || records_.cpus.size() == 1)) near.cpu = cpu;
    }
    for (const pugi::xml_node& child : object.children("object")) {
      find_devices(child, near, parent);
    }
  }

  int read_device(const pugi::xml_node& object, Near near, int parent) {
    const Attributes a(xml_, object, records_.doubts);
    DeviceRecord d;
    d.cpu = std::max(0, near.cpu);
    d.parent = parent;
    d.origin = xml_.origin(object);
    d.bus = a.bus_id("pci_busid");
    d.host_bridge = string_view(object.attribute("bridge_type").value()).starts_with("0-");
    read_type(object.attribute("pci_type").value(), d);
    if (string_view(object.attribute("subtype").value()) == "NVSwitch") d.pci_class = 0x068000;
    if (d.pci_class == 0 && type_of(object) == "Bridge" && !d.host_bridge) d.pci_class = 0x060400;
    set_speed(a.number("pci_link_speed").value_or(0), d);
    if (is_gpu(d)) {
      d.gpu = GpuRecord();
      d.gpu->dev = gpus_++;
      d.gpu->origin = d.origin;
    }
    d.has_nic = is_nic_class(d.pci_class);
    records_.devices.push_back(std::move(d));
    const int index = static_cast<int>(records_.devices.size()) - 1;
    remember(object, index);
    return index;
  }

  void remember(const pugi::xml_node& object, int device) {
    const auto number = parse_number<std::int64_t>(object.attribute("gp_index").value());
    if (number) by_number_[*number] = device;
  }

  /// "0302 [10de:1db8] [10de:131d] a1 00"
  static void read_type(string_view text, DeviceRecord& d) {
    const auto code = parse_number<std::int64_t>(text.substr(0, 4), 16);
    if (!code) return;
    d.pci_class = static_cast<std::uint32_t>(*code) << 8 & 0xffffff;
    const auto pair = [&](std::size_t open, std::string& first, std::string& second) {
      if (open == string_view::npos || text.size() < open + 11) return open;
      const string_view vendor = text.substr(open + 1, 4), device = text.substr(open + 6, 4);
      if (parse_number<std::int64_t>(vendor, 16)) first = "0x" + std::string(vendor);
      if (parse_number<std::int64_t>(device, 16)) second = "0x" + std::string(device);
      return text.find('[', open + 1);
    };
    const std::size_t next = pair(text.find('['), d.vendor, d.device);
    pair(next, d.subsystem_vendor, d.subsystem_device);
  }

  /// hwloc knows speed times width, in GB/s before headers. The record gets the widest such link.
  static void set_speed(double gigabytes, DeviceRecord& d) {
    if (!(gigabytes > 0)) return;
    for (const int width : {16, 8, 4, 2, 1}) {
      for (const double speed : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
        const double encoding = speed < 6 ? 0.8 : speed < 60 ? 128.0 / 130 : 1;
        const double raw = speed * encoding / 8 * width;
        if (std::abs(raw - gigabytes) > 0.03 * raw) continue;
        d.speed = speed;
        d.width = width;
        return;
      }
    }
  }

  void read_os_device(const pugi::xml_node& object, int device) {
    if (device < 0) return;
    remember(object, device);
    DeviceRecord& d = records_.devices[static_cast<std::size_t>(device)];
    const Attributes a(xml_, object, records_.doubts);
    const int type = a.integer_or("osdev_type", 0);
    const std::string name = a.text("name");
    const std::string model = info(object, "GPUModel"), uuid = info(object, "NVIDIAUUID");
    const bool is_gpu_name = std::ranges::any_of(
        std::array{"cuda", "nvml", "rsmi"}, [&](const char* n) { return name.starts_with(n); });
    if (!d.gpu && d.pci_class == 0 && is_gpu_name) {
      if (d.bus) {
        records_.doubts.push_back(
            {fmt::format("{}: {} has no pci_type that says what it is; {} makes it a GPU",
                         d.origin.text(), text_of(*d.bus), printable(name))});
      }
      d.gpu = GpuRecord();
      d.gpu->dev = gpus_++;
      d.gpu->origin = d.origin;
    }
    if (d.gpu) {
      if (!model.empty()) d.gpu->model = model;
      if (!uuid.empty()) d.gpu->uuid = uuid;
    }
    const bool network = third_format_ ? (type & 16) != 0 : type == 2;
    const bool fabric = third_format_ ? (type & 32) != 0 : type == 3;
    if (!network && !fabric) return;
    // The same port is an interface and an RDMA device: the latter counts.
    const auto is_interface = [](const NetRecord& n) { return n.port == 0; };
    if (fabric) std::erase_if(d.nets, is_interface);
    if (network && std::ranges::any_of(d.nets, std::not_fn(is_interface))) return;
    d.has_nic = true;
    d.nic_elements = 1;
    NetRecord net;
    net.name = name;
    net.dev = nets_++;
    net.port = fabric ? 1 : 0;
    const std::string state = info(object, "Port1State");
    net.up = state.empty() || state == "4";
    net.guid = info(object, "NodeGUID");
    net.origin = xml_.origin(object);
    d.nets.push_back(std::move(net));
  }

  /// A NIC that has lost its PCI type is like another one with ports of such a name.
  void complete_nics() {
    const auto kind = [](const DeviceRecord& d) {
      const std::string& name = d.nets.front().name;
      return name.substr(0, name.find_last_not_of("0123456789") + 1);
    };
    for (DeviceRecord& d : records_.devices) {
      if (d.nets.empty() || d.pci_class != 0 || !d.bus) continue;
      const auto alike = std::ranges::find_if(records_.devices, [&](const DeviceRecord& other) {
        return !other.nets.empty() && other.bus && is_nic_class(other.pci_class) &&
               kind(other) == kind(d);
      });
      d.pci_class = 0x020000;
      std::string like;
      if (alike != records_.devices.end()) {
        d.pci_class = alike->pci_class;
        d.vendor = alike->vendor;
        d.device = alike->device;
        d.subsystem_device = alike->subsystem_device;
        like = fmt::format(", like {}", text_of(*alike->bus));
      }
      records_.doubts.push_back(
          {fmt::format("{}: {} has no pci_type that says what it is; {} makes it a NIC{}",
                       d.origin.text(), text_of(*d.bus), printable(d.nets.front().name), like)});
    }
  }

  /// Disks, USB and the rest, and bridges that lead to nothing else, are left out.
  void prune() {
    std::vector<bool> kept(records_.devices.size());
    for (std::size_t i = kept.size(); i-- > 0;) {
      const DeviceRecord& d = records_.devices[i];
      kept[i] = kept[i] || d.gpu || d.has_nic || d.pci_class == 0x068000;
      if (kept[i] && d.parent >= 0) kept[static_cast<std::size_t>(d.parent)] = true;
    }
    std::vector<int> place(kept.size(), -1);
    std::vector<DeviceRecord> devices;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      place[i] = static_cast<int>(devices.size());
      devices.push_back(std::move(records_.devices[i]));
      int& parent = devices.back().parent;
      if (parent >= 0) parent = place[static_cast<std::size_t>(parent)];
    }
    if (devices.size() < kept.size()) {
      records_.unseen.push_back(fmt::format("{} other PCI devices and bridges are left out",
                                            kept.size() - devices.size()));
    }
    records_.devices = std::move(devices);
    for (auto& [number, device] : by_number_) device = place[static_cast<std::size_t>(device)];
  }

  const XmlSource& xml_;
  Records records_;
  pugi::xml_node machine_;
  std::string arch_;
  bool third_format_ = false;
  struct Package {
    pugi::xml_node object;
    std::set<int> cores;
  };
  std::vector<Package> packages_;
  std::map<std::int64_t, int> by_number_;  // devices, by gp_index of their objects
  int gpus_ = 0, nets_ = 0;
};

}  // namespace

Records read_hwloc(const XmlSource& xml) { return HwlocReader(xml).read(); }

}  // namespace tutti::topology

// What Linux shows: NUMA domains, processors, the PCI tree with its speeds, network interfaces,
// InfiniBand devices, AMD's GPUs (KFD). Of this machine or of a copied tree. The tree may be that
// of a container: devices without parents, without domains, and interfaces without devices are all
// usual there.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/cpu_mask.h"
#include "core/error.h"
#include "core/number.h"
#include "topology/check.h"
#include "topology/constants.h"
#include "topology/readers.h"
#include "topology/source.h"
#include "topology/sysfs_tree.h"

namespace tutti::topology {
namespace {

constexpr const char* kPci = "/sys/bus/pci/devices/";

/// Link speed and width in a device's PCI Express capability, for kernels without files of them.
struct PciExpress {
  double speed = 0, possible_speed = 0;
  int width = 0, possible_width = 0;
};

PciExpress express_of(const std::string& config) {
  constexpr double kSpeeds[] = {0, 2.5, 5, 8, 16, 32, 64};
  const auto byte = [&](std::size_t at) {
    return at < config.size() ? static_cast<unsigned char>(config[at]) : 0U;
  };
  PciExpress found;
  std::size_t at = byte(0x34) & 0xfcU;
  for (int steps = 0; at >= 0x40 && steps < 48; ++steps, at = byte(at + 1) & 0xfcU) {
    if (byte(at) != 0x10) continue;
    const auto speed = [&](unsigned code) { return code < std::size(kSpeeds) ? kSpeeds[code] : 0; };
    const unsigned capabilities = byte(at + 0x0c) | byte(at + 0x0d) << 8U;
    const unsigned status = byte(at + 0x12) | byte(at + 0x13) << 8U;
    found.possible_speed = speed(capabilities & 0xf);
    found.possible_width = static_cast<int>(capabilities >> 4U & 0x3f);
    found.speed = speed(status & 0xf);
    found.width = static_cast<int>(status >> 4U & 0x3f);
    break;
  }
  return found;
}

class SysfsReader {
 public:
  explicit SysfsReader(const std::string& root) : tree_(root) {
    records_.source = root.empty() ? "/sys" : root;
    records_.format = "sysfs";
    records_.hosts.push_back(tree_.line("/proc/sys/kernel/hostname"));
  }

  Records read() {
    read_sysfs_processors(tree_, records_);
    read_pci();
    read_infiniband();
    read_interfaces();
    read_kfd(tree_, "/sys/class/kfd/kfd/topology", records_);
    const auto is_nvidia = [](const auto& d) { return d.gpu && d.vendor == "0x10de"; };
    if (!tree_.root().empty() && std::ranges::any_of(records_.devices, is_nvidia)) {
      records_.unseen.emplace_back("NVLink: the driver knows it, and no file of /sys");
    }
    return std::move(records_);
  }

 private:
  Origin at(const std::string& path) const { return {tree_.root() + path, 0}; }

  // --- PCI ---------------------------------------------------------------------------------------

  void read_pci() {
    for (const std::string& name : tree_.names(kPci)) {
      const auto id = parse_bus_id(name);
      if (!id) continue;
      ++records_.elements;
      const auto pci_class = class_of(kPci + name + "/").value;
      const bool network = is_nic_class(pci_class);
      const bool nvswitch =
          pci_class >> 8 == 0x0680 && tree_.line(kPci + name + "/vendor") == "0x10de";
      DeviceRecord probe;
      probe.pci_class = pci_class;
      probe.vendor = tree_.line(kPci + name + "/vendor");
      if (!network && !nvswitch && !is_gpu(probe)) continue;
      if (tree_.exists(kPci + name + "/physfn")) {
        // A virtual function beside its device; in a guest, where there is no device, it is one.
        ++virtual_functions_;
        continue;
      }
      const auto path = tree_.pci_path(kPci + name);
      add_path(path, *id);
    }
    if (virtual_functions_ > 0) {
      records_.unseen.push_back(
          fmt::format("{} virtual functions are left out", virtual_functions_));
    }
    if (!tree_.exists(kPci)) records_.unseen.emplace_back("no PCI devices can be seen");
  }

  /// The device, with the bridges above it that are not there yet.
  void add_path(const SysfsTree::PciPath& path, const BusId& id) {
    int parent = -1;
    if (!path.host_bridge.empty()) parent = host_bridge(path, id);
    for (const BusId& part : path.devices) {
      if (part == id) break;
      parent = device(part, parent);
    }
    device(id, parent);
  }

  int host_bridge(const SysfsTree::PciPath& path, const BusId& id) {
    const auto [at_bridge, is_new] =
        host_bridges_.try_emplace(path.host_bridge, static_cast<int>(records_.devices.size()));
    if (is_new) {
      DeviceRecord d;
      d.host_bridge = true;
      d.cpu = processor_of(path.devices.empty() ? id : path.devices.front());
      d.origin = at("/sys/devices/" + path.host_bridge);
      records_.devices.push_back(std::move(d));
    }
    return at_bridge->second;
  }

  int processor_of(const BusId& id) {
    const std::string folder = kPci + text_of(id) + "/";
    const auto numa = tree_.integer(folder + "numa_node");
    auto cores = members_of_mask(tree_.line(folder + "local_cpus"));
    if (cores.empty()) cores = members_of_list(tree_.line(folder + "local_cpulist"));
    for (std::size_t c = 0; c < records_.cpus.size(); ++c) {
      if (numa && *numa == records_.cpus[c].numa) return static_cast<int>(c);
    }
    // Those of one domain only: a device that is near to all cores is near to none in particular.
    int found = -1;
    for (std::size_t c = 0; c < records_.cpus.size(); ++c) {
      const auto own = members_of_mask(records_.cpus[c].affinity);
      if (std::ranges::none_of(own, [&](int core) { return cores.contains(core); })) continue;
      if (found >= 0) return -1;
      found = static_cast<int>(c);
    }
    return found;
  }

  /// What the system says, or the device's id where its file is lost.
  struct Class {
    std::uint32_t value = 0;
    bool guessed = false;
  };
  Class class_of(const std::string& folder) const {
    const auto said = static_cast<std::uint32_t>(tree_.integer(folder + "class").value_or(0));
    if (said != 0) return {said & 0xffffff, false};
    const std::uint16_t vendor = id_of(tree_.line(folder + "vendor"));
    const std::uint16_t device = id_of(tree_.line(folder + "device"));
    if (device != 0 && gpu_model(vendor, device, 0, "").device == device) return {0x030200, true};
    if (nic_speed(vendor, device) > 0) return {0x020000, true};
    return {};
  }

  int device(const BusId& id, int parent) {
    const auto [known, is_new] =
        devices_.try_emplace(id, static_cast<int>(records_.devices.size()));
    if (!is_new) return known->second;
    const std::string folder = kPci + text_of(id) + "/";
    DeviceRecord d;
    d.bus = id;
    d.parent = parent;
    d.cpu = processor_of(id);
    if (d.cpu < 0 && parent >= 0) d.cpu = records_.devices[static_cast<std::size_t>(parent)].cpu;
    d.origin = at(folder);
    const Class is = class_of(folder);
    d.pci_class = is.value;
    if (is.guessed) {
      records_.doubts.push_back(
          {fmt::format("{}class says nothing; by its device id {} is a {}", folder, text_of(id),
                       is_nic_class(is.value) ? "NIC" : "GPU")});
    }
    d.vendor = tree_.line(folder + "vendor");
    d.device = tree_.line(folder + "device");
    d.subsystem_vendor = tree_.line(folder + "subsystem_vendor");
    d.subsystem_device = tree_.line(folder + "subsystem_device");
    read_speed(folder, d);
    if (is_gpu(d)) {
      d.gpu = GpuRecord();
      d.gpu->dev = gpus_++;
      d.gpu->origin = d.origin;
    }
    d.has_nic = is_nic_class(d.pci_class);
    d.nic_elements = d.has_nic ? 1 : 0;
    records_.devices.push_back(std::move(d));
    return known->second;
  }

  void read_speed(const std::string& folder, DeviceRecord& d) const {
    const std::string now = tree_.line(folder + "current_link_speed");
    d.speed_text = now;
    d.speed = transfers_per_second(now);
    d.possible_speed = transfers_per_second(tree_.line(folder + "max_link_speed"));
    const auto width = [&](const char* name) -> Maybe<int> {
      const auto value = tree_.integer(folder + name);
      if (!value || *value <= 0 || *value > 255) return {};
      return static_cast<int>(*value);
    };
    d.width = width("current_link_width");
    d.possible_width = width("max_link_width");
    if (!now.empty()) return;
    const PciExpress express = express_of(tree_.all(folder + "config"));
    if (express.speed > 0) d.speed = express.speed;
    if (express.possible_speed > 0) d.possible_speed = express.possible_speed;
    if (express.width > 0) d.width = express.width;
    if (express.possible_width > 0) d.possible_width = express.possible_width;
  }

  // --- Network -----------------------------------------------------------------------------------

  /// "200 Gb/sec (4X HDR)" in Mbit/s.
  static Maybe<std::int64_t> rate(const std::string& text) {
    const auto value = parse_number<double>(std::string_view(text).substr(0, text.find(' ')));
    if (!value || !(*value > 0) || *value > 1e6) return {};
    return static_cast<std::int64_t>(*value * 1000);
  }

  int device_of(const std::string& link) {
    const auto path = tree_.pci_path(link);
    if (path.devices.empty()) return -1;
    const auto known = devices_.find(path.devices.back());
    return known == devices_.end() ? -1 : known->second;
  }

  void read_infiniband() {
    for (const std::string& name : tree_.names("/sys/class/infiniband")) {
      const std::string folder = "/sys/class/infiniband/" + name;
      const int index = device_of(folder);
      if (index < 0) continue;
      for (const std::string& port : tree_.names(folder + "/ports")) {
        NetRecord net;
        net.name = name;
        net.dev = nets_++;
        net.port = static_cast<int>(parse_number<std::int64_t>(port).value_or(1) & 0xffff);
        net.speed = rate(tree_.line(folder + "/ports/" + port + "/rate"));
        net.up = tree_.line(folder + "/ports/" + port + "/state").starts_with("4");
        net.guid = tree_.line(folder + "/node_guid");
        net.origin = at(folder + "/ports/" + port);
        add_port(index, std::move(net));
      }
    }
  }

  void add_port(int index, NetRecord net) {
    DeviceRecord& d = records_.devices[static_cast<std::size_t>(index)];
    d.has_nic = true;
    d.nic_elements = 1;
    d.nets.push_back(std::move(net));
  }

  void read_interfaces() {
    std::vector<std::string> without_device;
    for (const std::string& name : tree_.names("/sys/class/net")) {
      const std::string folder = "/sys/class/net/" + name;
      const int index = device_of(folder);
      if (index < 0) {
        if (name != "lo") without_device.push_back(name);
        continue;
      }
      DeviceRecord& d = records_.devices[static_cast<std::size_t>(index)];
      // The port is there as an RDMA device already.
      if (std::ranges::any_of(d.nets, [](const NetRecord& n) { return n.port > 0; })) continue;
      add_port(index, interface(name, folder));
    }
    const bool real = std::ranges::any_of(records_.devices,
                                          [](const DeviceRecord& d) { return !d.nets.empty(); });
    if (real && !without_device.empty()) {
      records_.unseen.push_back(
          fmt::format("{} interface(s) without a device are left out", without_device.size()));
      return;
    }
    // A container or a guest: its interfaces are all there is.
    for (const std::string& name : without_device) {
      const std::string folder = "/sys/class/net/" + name;
      if (tree_.exists(folder + "/bridge") || tree_.exists(folder + "/bonding")) continue;
      DeviceRecord d;
      d.cpu = 0;
      d.has_nic = true;
      d.nic_elements = 1;
      d.origin = at(folder);
      d.nets.push_back(interface(name, folder));
      if (d.nets.back().up) records_.devices.push_back(std::move(d));
    }
  }

  NetRecord interface(const std::string& name, const std::string& folder) {
    NetRecord net;
    net.name = name;
    net.dev = nets_++;
    const auto speed = tree_.integer(folder + "/speed");
    if (speed && *speed > 0) net.speed = *speed;
    const std::string state = tree_.line(folder + "/operstate");
    net.up = state.empty() || state == "up" || state == "unknown";
    net.origin = at(folder);
    return net;
  }

  SysfsTree tree_;
  Records records_;
  std::map<std::string, int> host_bridges_;
  std::map<BusId, int> devices_;
  int gpus_ = 0, nets_ = 0, virtual_functions_ = 0;
};

}  // namespace

Records read_sysfs(const std::string& root) {
  const SysfsTree tree(root);
  if (tree.exists("/sys")) return SysfsReader(root).read();
  for (const char* folder : {"", "/topology"}) {
    if (!tree.exists(folder + std::string("/nodes"))) continue;
    Records records;
    records.source = root;
    records.format = "KFD topology";
    records.hosts.emplace_back("");
    read_kfd(tree, folder, records);
    return records;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is a folder with neither sys/ nor nodes/ in it, so it is no copy of "
                          "/sys and no KFD topology",
                          printable(root)));
}

}  // namespace tutti::topology

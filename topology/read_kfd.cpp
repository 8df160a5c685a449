// AMD's GPUs: /sys/class/kfd/kfd/topology/nodes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "core/number.h"
#include "topology/constants.h"
#include "topology/readers.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

constexpr int kPciLink = 2, kXgmiLink = 11;  // HSA_IOLINKTYPE_*

using Properties = std::map<std::string, std::int64_t>;

Properties properties_of(const SysfsTree& tree, const std::string& path) {
  Properties p;
  std::istringstream stream(tree.all(path));
  for (std::string name, value; stream >> name >> value;) {
    p[name] = parse_number<std::int64_t>(value).value_or(0);
  }
  return p;
}

/// 90010 is gfx90a: major, minor, stepping in decimal, the last two printed as digits.
std::string architecture(std::int64_t version) {
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

struct Node {
  Properties properties;
  std::vector<Properties> links;
  int cpu = -1, device = -1;
  std::string path;
};

class KfdReader {
 public:
  KfdReader(const SysfsTree& tree, const std::string& folder, Records& records)
      : tree_(tree), records_(records) {
    for (const std::string& name : tree.names(folder + "/nodes")) {
      const auto number = parse_number<std::int64_t>(name);
      if (!number) continue;
      const std::string path = folder + "/nodes/" + name;
      Node& node = nodes_[*number];
      node.path = path;
      node.properties = properties_of(tree, path + "/properties");
      for (const std::string& link : tree.names(path + "/io_links")) {
        node.links.push_back(properties_of(tree, path + "/io_links/" + link + "/properties"));
      }
      records_.elements += 1 + static_cast<std::int64_t>(node.links.size());
    }
  }

  void read() {
    const bool alone = records_.cpus.empty();
    for (auto& [number, node] : nodes_) {
      if (alone && node.properties["cpu_cores_count"] > 0) {
        CpuRecord cpu;
        cpu.numa = static_cast<int>(number & 0xffff);
        cpu.cores = static_cast<int>(node.properties["cpu_cores_count"] & 0xffff);
        cpu.origin = {tree_.root() + node.path, 0};
        node.cpu = static_cast<int>(records_.cpus.size());
        records_.cpus.push_back(cpu);
      }
    }
    if (records_.cpus.empty()) records_.cpus.emplace_back().numa = 0;
    for (auto& [number, node] : nodes_) {
      if (node.properties["simd_count"] > 0) add_gpu(node);
    }
    for (auto& [number, node] : nodes_) {
      if (node.device >= 0) add_links(node);
    }
  }

 private:
  /// The parts of a divided GPU have one address; which part it is, newer kernels write into the
  /// uppermost four bits, and older ones into the function. Here it is the function.
  static BusId address_of(Properties& p) {
    const std::int64_t place = p["location_id"], function = place & 7;
    return {static_cast<std::uint32_t>(p["domain"]), static_cast<std::uint8_t>(place >> 8 & 0xff),
            static_cast<std::uint8_t>(place >> 3 & 0x1f),
            static_cast<std::uint8_t>(function != 0 ? function : place >> 28 & 0xf)};
  }

  void add_gpu(Node& node) {
    Properties& p = node.properties;
    const BusId bus = address_of(p);
    const auto known = std::ranges::find_if(records_.devices, [&](const DeviceRecord& d) {
      return d.bus == bus && d.gpu && d.gpu->gcn.empty();
    });
    if (known != records_.devices.end()) {
      node.device = static_cast<int>(known - records_.devices.begin());
    } else {
      DeviceRecord d;
      // PCI knows the first of several parts alone; the others hang where it does.
      const auto sibling = std::ranges::find_if(records_.devices, [&](const DeviceRecord& other) {
        return other.gpu && other.bus && other.bus->slot() == bus.slot();
      });
      if (sibling != records_.devices.end()) {
        d = *sibling;
        d.nets.clear();
      } else {
        d.cpu = processor_of(node);
      }
      d.bus = bus;
      d.pci_class = 0x038000;
      d.vendor = fmt::format("{:#06x}", p["vendor_id"] & 0xffff);
      d.device = fmt::format("{:#06x}", p["device_id"] & 0xffff);
      d.origin = {tree_.root() + node.path, 0};
      d.gpu = GpuRecord();
      d.gpu->origin = d.origin;
      node.device = static_cast<int>(records_.devices.size());
      records_.devices.push_back(std::move(d));
    }
    GpuRecord& g = *records_.devices[static_cast<std::size_t>(node.device)].gpu;
    g.dev = gpus_++;
    g.gcn = architecture(p["gfx_target_version"]);
    const std::int64_t simds = std::max<std::int64_t>(1, p["simd_per_cu"]);
    g.sm = static_cast<int>(p["simd_count"] / simds & 0xffff);
  }

  int processor_of(const Node& node) {
    for (const Properties& link : node.links) {
      const auto type = link.find("type"), to = link.find("node_to");
      if (type == link.end() || to == link.end() || type->second != kPciLink) continue;
      const auto target = nodes_.find(to->second);
      if (target != nodes_.end() && target->second.cpu >= 0) return target->second.cpu;
    }
    return 0;
  }

  void add_links(const Node& node) {
    for (const Properties& link : node.links) {
      const auto value = [&](const char* name) {
        const auto at = link.find(name);
        return at == link.end() ? 0 : at->second;
      };
      if (value("type") != kXgmiLink) continue;
      const auto target = nodes_.find(value("node_to"));
      if (target == nodes_.end() || target->second.device < 0) continue;
      DeviceRecord& from = records_.devices[static_cast<std::size_t>(node.device)];
      const DeviceRecord& to = records_.devices[static_cast<std::size_t>(target->second.device)];
      const GpuModel& model = gpu_model(0x1002, 0, 0, from.gpu->gcn);
      GpuLinkRecord record;
      record.kind = GpuLinkRecord::Kind::xgmi;
      record.target = to.bus;
      record.target_class = to.pci_class;
      record.bandwidth = value("max_bandwidth");
      const double rate = model.rate > 0 ? model.rate * 1000 : 50000;
      record.count = std::max<std::int64_t>(
          1, std::llround(static_cast<double>(std::min<std::int64_t>(record.bandwidth, 1 << 30)) /
                          rate));
      record.origin = {tree_.root() + node.path, 0};
      from.gpu->links.push_back(record);
    }
  }

  const SysfsTree& tree_;
  Records& records_;
  std::map<std::int64_t, Node> nodes_;
  int gpus_ = 0;
};

}  // namespace

void read_kfd(const SysfsTree& tree, const std::string& folder, Records& records) {
  KfdReader(tree, folder, records).read();
}

}  // namespace tutti::topology

#include "topology/show/inventory.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace tutti::topology {

Inventory inventory_of(const Records& records) {
  Inventory n;
  n.version = records.version;
  n.elements = records.elements;
  n.hosts = static_cast<int>(records.hosts.size());
  n.cpus = static_cast<int>(records.cpus.size());
  std::map<std::int64_t, int> speeds;
  std::set<BusId> switches;
  for (const DeviceRecord& d : records.devices) {
    n.pci += d.bus ? 1 : 0;
    n.gpu_elements += d.gpu ? 1 : 0;
    n.gpus_by_class_only += !d.gpu && is_gpu_class(d.pci_class) ? 1 : 0;
    n.nic_elements += d.nic_elements;
    n.nic_pci_by_class += is_nic_class(d.pci_class) ? 1 : 0;
    n.nets += static_cast<int>(d.nets.size());
    for (const NetRecord& net : d.nets) ++speeds[net.speed.value_or(-1)];
    if (!d.gpu) continue;
    for (const GpuLinkRecord& l : d.gpu->links) {
      switch (l.kind) {
        case GpuLinkRecord::Kind::nvlink:
          ++n.nvlink_elements;
          n.nvlink_links += l.count;
          if (l.target_class == 0x068000 && l.target) switches.insert(*l.target);
          break;
        case GpuLinkRecord::Kind::xgmi:
          ++n.xgmi_elements;
          n.xgmi_links += l.count;
          break;
        case GpuLinkRecord::Kind::c2c:
          ++n.c2c_elements;
          break;
      }
    }
  }
  n.nvswitch_targets = static_cast<std::int64_t>(switches.size());
  for (const auto& [speed, count] : speeds) {
    n.net_speeds += fmt::format("{}{}x{}", n.net_speeds.empty() ? "" : " ",
                                speed == -1 ? "-" : std::to_string(speed), count);
  }
  return n;
}

}  // namespace tutti::topology

// See records.h.
#include "topology/records.h"

namespace tutti::topology {

bool is_gpu_class(std::uint32_t pci_class) {
  const std::uint32_t kind = pci_class >> 8;  // VGA, 3D, display, processing accelerator
  return kind == 0x0300 || kind == 0x0302 || kind == 0x0380 || kind == 0x1200;
}

bool is_nic_class(std::uint32_t pci_class) { return pci_class >> 16 == 0x02; }

bool is_bridge_class(std::uint32_t pci_class) {
  return pci_class >> 8 == 0x0604 || pci_class >> 8 == 0x0801;  // 0801: ConnectX-8's switch
}

bool is_gpu(const DeviceRecord& device) {
  if (device.gpu) return true;
  if (!is_gpu_class(device.pci_class)) return false;
  // Servers have a VGA device of their management controller; it is no GPU that anybody means.
  return device.vendor.empty() || device.vendor == "0x10de" || device.vendor == "0x1002";
}

}  // namespace tutti::topology

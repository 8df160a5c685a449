// The address of a PCI device: domain:bus:device.function. Domains have 16 bits on most machines
// and 32 on some; NCCL writes fffffff:ff:ff.0 for an NVSwitch of unknown address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::topology {

struct BusId {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0, device = 0, function = 0;

  /// The address that stands for an NVSwitch without one.
  bool is_nameless_switch() const { return domain == 0xfffffff && bus == 0xff; }
  /// The address of its device; the parts of a divided GPU are functions of one device.
  BusId slot() const { return {domain, bus, device, 0}; }
  friend auto operator<=>(const BusId&, const BusId&) = default;
};

/// "0000:3b:00.0", "10000:00:04.0", "3b:00.0"; nothing for any other text.
std::optional<BusId> parse_bus_id(std::string_view text);
/// With at least four digits of domain.
std::string text_of(const BusId& id);

}  // namespace tutti::topology

// See divided.h.
#include "topology/divided.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "topology/check.h"
#include "topology/constants.h"

namespace tutti::topology {
namespace {

/// Parts that reach each other inside of the device do so through its memory, where each byte is
/// read and written. All parts may do so at once, so each has its share.
Link through_memory(const Records& records, const std::vector<std::size_t>& parts) {
  const DeviceRecord& first = records.devices[parts.front()];
  Link l;
  l.kind = LinkKind::xgmi;
  l.latency = kGpuLinkHop / 2;
  l.assumed = true;
  l.origin = first.gpu->origin;
  l.bandwidth = shared_memory(model_of(first)) / (2 * static_cast<double>(parts.size()));
  for (const GpuLinkRecord& said : first.gpu->links) {
    if (!said.target || said.target->slot() != first.bus->slot() || said.bandwidth <= 0) continue;
    l.bandwidth = std::min(l.bandwidth, static_cast<double>(said.bandwidth) / 1000);
    l.lanes = std::max(l.lanes, static_cast<int>(std::clamp<std::int64_t>(said.count, 1, 1000)));
  }
  return l;
}

/// Parts that reach nothing but the host share the device's PCI link, which the builder divides.
Link through_host(const DeviceRecord& first) {
  Link l;
  l.kind = LinkKind::pci;
  l.assumed = true;
  l.origin = first.gpu->origin;
  return l;
}

}  // namespace

std::vector<DividedGpu> divided_gpus(const Records& records) {
  std::map<std::tuple<int, BusId>, std::vector<std::size_t>> by_slot;
  for (std::size_t i = 0; i < records.devices.size(); ++i) {
    const DeviceRecord& d = records.devices[i];
    if (!d.gpu || !d.bus || (!d.gpu->mig && shared_memory(model_of(d)) == 0)) continue;
    by_slot[{host_of(records, d), d.bus->slot()}].push_back(i);
  }
  std::vector<DividedGpu> found;
  for (auto& [slot, parts] : by_slot) {
    if (parts.size() < 2) continue;
    const DeviceRecord& first = records.devices[parts.front()];
    const Link link = first.gpu->mig ? through_host(first) : through_memory(records, parts);
    found.push_back({std::move(parts), link});
  }
  return found;
}

std::vector<std::vector<int>> by_device(const Graph& graph, const std::vector<int>& gpus) {
  std::vector<std::vector<int>> devices;
  std::map<int, std::size_t> place;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const int above = graph.node(gpus[i]).parent;
    const bool is_part = above >= 0 && graph.node(above).kind == NodeKind::device;
    const auto [at, is_new] = place.try_emplace(is_part ? above : gpus[i], devices.size());
    if (is_new) devices.emplace_back();
    devices[at->second].push_back(static_cast<int>(i));
  }
  return devices;
}

}  // namespace tutti::topology

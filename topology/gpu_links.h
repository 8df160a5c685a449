// The links of all GPUs in records, for check_gpu_links.cpp and check_gpu_switches.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "topology/check.h"

namespace tutti::topology {

class GpuLinks {
 public:
  using Kind = GpuLinkRecord::Kind;
  static constexpr std::uint32_t kSwitchClass = 0x068000;

  GpuLinks(Records& r, Doubts& d) : records(r), doubts(d) {
    for (std::size_t i = 0; i < records.devices.size(); ++i) {
      const DeviceRecord& device = records.devices[i];
      if (device.gpu && device.bus) gpus[{host_of(records, device), *device.bus}] = i;
    }
  }

  std::vector<GpuLinkRecord>& links(std::size_t gpu) { return records.devices[gpu].gpu->links; }
  std::string name(std::size_t gpu) const { return name_of(records.devices[gpu]); }
  /// That has been said, and with it that its links are missing.
  bool is_lost(std::size_t gpu) const {
    return records.devices[gpu].gpu->lost || without_target.contains(gpu);
  }

  std::int64_t most_links(std::size_t gpu) const {
    const int links = model_of(records.devices[gpu]).links;
    return links > 0 ? links : kMostLinks;
  }

  /// The GPU at the other end; -1 where there is none.
  int other_end(std::size_t gpu, const GpuLinkRecord& link) const {
    if (!link.target) return -1;
    const auto at = gpus.find({host_of(records, records.devices[gpu]), *link.target});
    return at == gpus.end() ? -1 : static_cast<int>(at->second);
  }

  bool to_switch(std::size_t gpu, const GpuLinkRecord& l) const {
    return l.kind == Kind::nvlink && l.target && other_end(gpu, l) < 0 &&
           (l.target_class == kSwitchClass || l.target->is_nameless_switch());
  }

  GpuLinkRecord* link_to(std::size_t from, std::size_t to, Kind kind) {
    for (GpuLinkRecord& l : links(from)) {
      if (l.kind == kind && l.target == records.devices[to].bus) return &l;
    }
    return nullptr;
  }

  Records& records;
  Doubts& doubts;
  std::map<std::pair<int, BusId>, std::size_t> gpus;  // by host and address
  std::set<std::size_t> without_target;               // with links that could not be read

 private:
  static constexpr std::int64_t kMostLinks = 18;  // where the model is not known: no GPU has more
};

/// GPUs that list all others with as many links as they have: to switches that the source lacks.
void find_hidden_switches(GpuLinks& gpus);
/// All GPUs of a host have equally many links to switches.
void compare_switch_links(GpuLinks& gpus);

}  // namespace tutti::topology

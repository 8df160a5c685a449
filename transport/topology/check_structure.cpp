// Things that are listed twice, that have each other as parents, or that have lost their records;
// see check.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "transport/topology/check.h"

namespace tutti::topology {
namespace {

/// Removes devices; their children go to `heir` (the parent's or the twin's index).
void remove_devices(Records& r, const std::map<int, int>& heirs) {
  if (heirs.empty()) return;
  std::vector<int> place(r.devices.size());
  std::vector<DeviceRecord> kept;
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    if (heirs.contains(static_cast<int>(i))) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(r.devices[i]));
  }
  for (DeviceRecord& d : kept) {
    while (d.parent >= 0 && heirs.contains(d.parent)) d.parent = heirs.at(d.parent);
    if (d.parent >= 0) d.parent = place[static_cast<std::size_t>(d.parent)];
  }
  r.devices = std::move(kept);
}

/// Two processors with one number on one host are one.
void join_processors(Records& r, Doubts& doubts) {
  std::map<std::pair<int, int>, int> known;
  std::vector<int> place;
  std::vector<CpuRecord> kept;
  for (const CpuRecord& cpu : r.cpus) {
    const auto [at, is_new] =
        known.try_emplace({cpu.host, cpu.numa}, static_cast<int>(kept.size()));
    place.push_back(at->second);
    if (is_new) {
      kept.push_back(cpu);
    } else if (cpu.numa >= 0) {
      doubts.add(fmt::format("NUMA domain {}", cpu.numa), cpu.origin,
                 "is there twice; both are taken as one");
    } else {
      // Without numbers they are told apart by their order.
      place.back() = static_cast<int>(kept.size());
      kept.push_back(cpu);
    }
  }
  r.cpus = std::move(kept);
  for (DeviceRecord& d : r.devices) {
    if (d.cpu >= static_cast<int>(place.size())) d.cpu = -1;
    if (d.cpu >= 0) d.cpu = place[static_cast<std::size_t>(d.cpu)];
  }
}

/// A parent that is not before its child would make a circle possible.
void break_circles(Records& r, Doubts& doubts) {
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    DeviceRecord& d = r.devices[i];
    std::set<int> above{static_cast<int>(i)};
    for (int p = d.parent; p >= 0; p = r.devices[static_cast<std::size_t>(p)].parent) {
      if (p < static_cast<int>(r.devices.size()) && above.insert(p).second) continue;
      doubts.add(name_of(d), d.origin, "is below itself; it is put on its processor");
      d.parent = -1;
      break;
    }
  }
}

void drop_twins(Records& r, Doubts& doubts) {
  std::map<std::tuple<int, BusId>, int> known;
  std::map<int, int> heirs;
  std::set<int> parents;
  for (const DeviceRecord& d : r.devices) parents.insert(d.parent);
  for (int i = 0; i < static_cast<int>(r.devices.size()); ++i) {
    const DeviceRecord& d = r.devices[static_cast<std::size_t>(i)];
    if (!d.bus) continue;
    const auto [at, is_new] = known.try_emplace({host_of(r, d), *d.bus}, i);
    if (is_new) continue;
    const DeviceRecord& first = r.devices[static_cast<std::size_t>(at->second)];
    const bool alike = first.pci_class == d.pci_class && first.device == d.device;
    if (!alike || (parents.contains(i) && parents.contains(at->second))) {
      doubts.add(text_of(*d.bus), d.origin,
                 "is the address of several devices; they are taken as different ones");
    } else {
      doubts.add(text_of(*d.bus), d.origin, "is there twice; the first record counts");
      heirs[i] = at->second;
    }
  }
  remove_devices(r, heirs);
}

/// Interfaces without a device are listed under every processor. They count once.
void join_virtual_interfaces(Records& r) {
  std::set<std::tuple<int, std::string, int>> known;
  std::map<int, int> heirs;
  for (int i = 0; i < static_cast<int>(r.devices.size()); ++i) {
    DeviceRecord& d = r.devices[static_cast<std::size_t>(i)];
    if (d.bus || d.host_bridge || d.gpu) continue;
    std::erase_if(d.nets, [&](const NetRecord& n) {
      return !known.insert({host_of(r, d), n.name, n.port}).second;
    });
    if (d.nets.empty() && d.parent < 0) heirs[i] = -1;
  }
  remove_devices(r, heirs);
}

void number_gpus(Records& r, Doubts& doubts) {
  const bool any = std::ranges::any_of(r.devices, [](const auto& d) { return d.gpu.has_value(); });
  std::map<int, std::set<int>> taken;
  std::vector<DeviceRecord*> without;
  for (DeviceRecord& d : r.devices) {
    if (!is_gpu(d)) continue;
    if (!d.gpu) {
      if (any) {
        doubts.add(d.bus ? text_of(*d.bus) : "a device", d.origin,
                   "is a GPU by its class, but has no <gpu>; it is taken as one");
      }
      d.gpu = GpuRecord();
      d.gpu->lost = any;
      d.gpu->origin = d.origin;
    }
    if (d.gpu->dev < 0) {
      without.push_back(&d);
    } else if (!taken[host_of(r, d)].insert(d.gpu->dev).second) {
      doubts.add(fmt::format("gpu{}", d.gpu->dev), d.gpu->origin,
                 "is the number of several GPUs; the later one gets a free number");
      without.push_back(&d);
    }
  }
  std::map<int, int> next;
  for (DeviceRecord* d : without) {
    auto& numbers = taken[host_of(r, *d)];
    int& free = next[host_of(r, *d)];
    while (numbers.contains(free)) ++free;
    numbers.insert(free);
    d->gpu->dev = free;
  }
}

/// The capability, which tells what an NVLink carries, is that of the other GPUs of the same
/// device.
void check_capability(Records& r, Doubts& doubts) {
  std::map<std::string, std::vector<int>> of;
  for (const DeviceRecord& d : r.devices) {
    if (d.gpu && d.gpu->gcn.empty() && d.gpu->sm != 0) of[d.device].push_back(d.gpu->sm);
  }
  for (DeviceRecord& d : r.devices) {
    if (!d.gpu || !d.gpu->gcn.empty() || !of.contains(d.device)) continue;
    const auto usual = common(of[d.device]);
    if (!usual || d.gpu->sm == *usual) continue;
    if (!d.gpu->lost) {
      doubts.add(name_of(d), d.gpu->origin,
                 fmt::format("says capability {}, the others of its kind {}; {} is taken",
                             d.gpu->sm, *usual, *usual));
    }
    d.gpu->sm = *usual;
  }
}

}  // namespace

void check_structure(Records& records, Doubts& doubts) {
  if (records.hosts.empty()) records.hosts.emplace_back("");
  if (records.cpus.empty()) records.cpus.emplace_back();
  join_processors(records, doubts);
  break_circles(records, doubts);
  drop_twins(records, doubts);
  join_virtual_interfaces(records);
  number_gpus(records, doubts);
  check_capability(records, doubts);
}

}  // namespace tutti::topology

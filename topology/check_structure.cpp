// See check.h. Things that are listed twice, are each other's parents, or have lost their records.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "topology/check.h"

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

/// Addresses of GPUs that links lead to and that no device has.
std::set<BusId> missing_gpus(const Records& r) {
  std::set<BusId> targets;
  for (const DeviceRecord& d : r.devices) {
    for (const GpuLinkRecord& l : d.gpu ? d.gpu->links : std::vector<GpuLinkRecord>()) {
      if (l.target && is_gpu_class(l.target_class)) targets.insert(*l.target);
    }
  }
  for (const DeviceRecord& d : r.devices) {
    if (d.bus) targets.erase(*d.bus);
  }
  return targets;
}

/// If one GPU has an address that could not be read (a doubt says so already), the others' links
/// lead to it: it gets the one address that they lead to and no device has.
void find_address(Records& r) {
  const auto lost = [](const DeviceRecord& d) { return d.gpu && !d.bus; };
  if (std::ranges::count_if(r.devices, lost) != 1) return;
  const auto missing = missing_gpus(r);
  if (missing.size() == 1) std::ranges::find_if(r.devices, lost)->bus = *missing.begin();
}

/// By what they say of themselves; records that are copies say the same.
bool differ(const DeviceRecord& a, const DeviceRecord& b) {
  if (a.pci_class != b.pci_class || a.device != b.device) return true;
  if (a.gpu && b.gpu && a.gpu->dev != b.gpu->dev && a.gpu->rank != b.gpu->rank) return true;
  const auto names = [](const DeviceRecord& d) {
    std::set<std::string> all;
    for (const NetRecord& n : d.nets) all.insert(n.name);
    return all;
  };
  return !a.nets.empty() && !b.nets.empty() && names(a) != names(b);
}

/// `named`: devices that something was said of already, if they are there twice.
void drop_twins(Records& r, Doubts& doubts, const std::set<int>& named) {
  std::map<std::tuple<int, BusId>, int> known;
  std::map<int, int> heirs;
  std::map<int, std::set<BusId>> below;
  Maybe<std::set<BusId>> missing;  // once something asks for it
  for (const DeviceRecord& d : r.devices) below[d.parent].insert(d.bus.value_or(BusId{}));
  for (int i = 0; i < static_cast<int>(r.devices.size()); ++i) {
    DeviceRecord& d = r.devices[static_cast<std::size_t>(i)];
    if (!d.bus) continue;
    const auto [at, is_new] = known.try_emplace({host_of(r, d), *d.bus}, i);
    if (is_new) continue;
    const DeviceRecord& first = r.devices[static_cast<std::size_t>(at->second)];
    const bool parents = below.contains(i) && below.contains(at->second);
    if (d.gpu && !missing) missing = missing_gpus(r);
    if (d.gpu && differ(first, d) && missing->size() == 1) {
      doubts.add(text_of(*d.bus), d.origin,
                 fmt::format("is the address of {} and {}; the latter gets {}, which links lead to",
                             name_of(first), name_of(d), text_of(*missing->begin())));
      d.bus = *missing->begin();
      missing->clear();
      known.try_emplace({host_of(r, d), *d.bus}, i);
    } else if (d.gpu && first.gpu && differ(first, d) && shared_memory(model_of(d)) > 0) {
      // The parts of a divided GPU have one address, and different numbers (divided.h).
      BusId part = *d.bus;
      while (part.function < 15 && known.contains({host_of(r, d), part})) ++part.function;
      d.bus = part;
      known.try_emplace({host_of(r, d), part}, i);
    } else if (differ(first, d) || (parents && below[i] != below[at->second])) {
      doubts.add(text_of(*d.bus), d.origin,
                 "is the address of several devices; they are taken as different ones");
    } else {
      heirs[i] = at->second;
      if (named.contains(i) || heirs.contains(d.parent)) continue;
      doubts.add(text_of(*d.bus), d.origin, "is there twice; the first record counts");
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

/// The capability, which tells what an NVLink carries, is that of others of the same device.
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
  const auto moved = check_processors(records, doubts);
  break_circles(records, doubts);
  find_address(records);
  drop_twins(records, doubts, moved);
  join_virtual_interfaces(records);
  number_gpus(records, doubts);
  check_capability(records, doubts);
}

}  // namespace tutti::topology

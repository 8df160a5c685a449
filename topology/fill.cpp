// See fill.h.
#include "topology/fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "topology/abilities.h"
#include "topology/check.h"
#include "topology/discover.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

[[noreturn]] void contradict(const std::string& what) {
  throw Error(ErrorCode::invalid_argument,
              what + "; leave out what is described, or describe what the file has");
}

/// Of each host, in the order of their numbers, where they have such.
std::map<int, std::vector<std::size_t>> gpus_by_host(const Records& r) {
  std::map<int, std::vector<std::size_t>> found;
  std::set<std::pair<int, BusId>> known;  // what is listed twice counts once
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    const DeviceRecord& d = r.devices[i];
    if (!is_gpu(d)) continue;
    const bool placed = d.cpu >= 0 && d.cpu < static_cast<int>(r.cpus.size());
    const int host = placed ? host_of(r, d) : 0;
    if (d.bus && !known.insert({host, *d.bus}).second) continue;
    found[host].push_back(i);
  }
  for (auto& [host, gpus] : found) {
    std::ranges::stable_sort(
        gpus, {}, [&](std::size_t i) { return r.devices[i].gpu ? r.devices[i].gpu->dev : -1; });
  }
  return found;
}

/// Models that differ in memory alone are taken as one.
bool are_alike(const GpuModel& a, const GpuModel& b) {
  return a.vendor == b.vendor && a.sm == b.sm && a.gcn == b.gcn && a.links == b.links &&
         for_slots(a) == for_slots(b);
}

/// Whether it was filled in.
bool fill_model(DeviceRecord& d, const GpuModel& model) {
  const GpuModel& known = model_of(d);
  if (known.device != 0 && are_alike(known, model)) return false;
  // Of some the architecture alone is known.
  const bool fits = known.device == 0 && known.sm == model.sm && known.gcn == model.gcn;
  if (known.vendor != 0 && !fits) {
    contradict(fmt::format("{}: {} is {} by its ids, and {} is described", d.origin.text(),
                           name_of(d), known.name, model.name));
  }
  d.vendor = fmt::format("0x{:04x}", model.vendor);
  d.device = fmt::format("0x{:04x}", model.device);
  if (!d.gpu) {
    d.gpu = GpuRecord();
    d.gpu->origin = d.origin;
  }
  if (d.gpu->sm == 0) d.gpu->sm = model.sm;
  if (d.gpu->gcn.empty() && !model.gcn.empty()) d.gpu->gcn = fmt::format("gfx{}", model.gcn);
  return true;
}

bool has_links(const DeviceRecord& d) {
  return d.gpu && std::ranges::any_of(d.gpu->links, [](const GpuLinkRecord& l) {
           return l.kind != GpuLinkRecord::Kind::c2c;
         });
}

}  // namespace

std::string unlinked_gpus(const Graph& graph) {
  std::set<std::string> models;
  int count = 0;
  for (int host = 0; host < graph.hosts(); ++host) {
    std::map<int, int> whole;  // devices, and the GPUs that they are, or are parts of them
    for (const int gpu : graph.gpus()) {
      if (graph.node(gpu).host != host) continue;
      const int above = graph.node(gpu).parent;
      const bool part = above >= 0 && graph.node(above).kind == NodeKind::device;
      // MIG's instances have no links, which is known.
      const bool alone = part && std::ranges::any_of(graph.out(gpu), [&](int l) {
                           return graph.link(l).to == above && graph.link(l).kind == LinkKind::pci;
                         });
      if (!alone) ++whole[part ? above : gpu];
    }
    if (whole.size() < 2) continue;
    for (const auto& [node, gpus] : whole) {
      const int device = node;  // clang's lambdas do not take bindings
      const GpuModel* model = find_gpu_model(graph.node(device).model);
      // Of some the architecture alone is known.
      if (model == nullptr) model = gpu_model_named(graph.node(device).model);
      if (model == nullptr || !comes_linked(*model)) continue;
      const bool linked = std::ranges::any_of(graph.out(device), [&](int l) {
        const LinkKind kind = graph.link(l).kind;
        const bool own = graph.node(graph.link(l).to).parent == device;
        return !own && (kind == LinkKind::nvlink || kind == LinkKind::xgmi);
      });
      if (linked) continue;
      count += gpus;
      models.insert(graph.node(device).model);
    }
  }
  if (count == 0) return "";
  return fmt::format("{} GPU{} ({})", count, count == 1 ? "" : "s", fmt::join(models, ", "));
}

std::string fill_in(Records& records, const Described& machine) {
  Records like = records_of(machine_xml(*machine.model, machine.count, 0, 0, machine.bridged),
                            "what is described");
  const std::vector<std::size_t> described = gpus_by_host(like)[0];
  const auto hosts = gpus_by_host(records);
  if (hosts.empty()) contradict(fmt::format("{} has no GPUs", records.source));
  bool models = false, links = false;
  for (const auto& [host, gpus] : hosts) {
    if (gpus.size() != described.size()) {
      contradict(fmt::format("{} has {} GPUs, and {} are described", records.source, gpus.size(),
                             described.size()));
    }
    for (const std::size_t i : gpus) {
      models = fill_model(records.devices[i], *machine.model) || models;
    }
  }
  const bool said = std::ranges::any_of(records.devices, has_links);
  for (const auto& [host, gpus] : hosts) {
    std::map<BusId, Maybe<BusId>> place;  // of the description's GPUs among the file's
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      place[*like.devices[described[i]].bus] = records.devices[gpus[i]].bus;
    }
    for (std::size_t i = 0; !said && i < gpus.size(); ++i) {
      DeviceRecord& d = records.devices[gpus[i]];
      if (!d.gpu) {
        d.gpu = GpuRecord();
        d.gpu->origin = d.origin;
      }
      for (GpuLinkRecord l : like.devices[described[i]].gpu->links) {
        if (const auto peer = place.find(*l.target); peer != place.end()) l.target = peer->second;
        if (!l.target) continue;  // a GPU with an address that cannot be read
        l.origin = d.origin;
        d.gpu->links.push_back(l);
        links = true;
      }
    }
  }
  return fmt::format("{}{}{}", models ? "models" : "", models && links ? " and " : "",
                     links ? "links" : "");
}

}  // namespace tutti::topology

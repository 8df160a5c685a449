// NVLink, xGMI and C2C; see check.h. check_gpu_switches.cpp has the switches. Both ends of a link
// have a record of it, GPUs of one machine are alike, and a model has so many links and no more:
// with these three a single wrong record is found and outvoted.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "topology/check.h"
#include "topology/divided.h"
#include "topology/gpu_links.h"

namespace tutti::topology {
namespace {

constexpr std::uint32_t kProcessorClass = 0x068001;

class GpuLinkCheck : public GpuLinks {
 public:
  GpuLinkCheck(Records& r, Doubts& d) : GpuLinks(r, d) {
    for (const DividedGpu& device : divided_gpus(records)) {
      parts_.insert(device.parts.begin(), device.parts.end());
    }
  }

  void run() {
    for (auto& [key, index] : gpus) drop_unusable(index);
    drop_dangling();
    find_hidden_switches(*this);
    for (auto& [key, index] : gpus) join_twins(index);
    compare_ends();
    compare_switch_links(*this);
    compare_c2c();
  }

 private:
  void drop_unusable(std::size_t gpu) {
    std::erase_if(links(gpu), [&](const GpuLinkRecord& l) {
      if (l.kind == Kind::c2c) return false;
      if (!l.target) {
        doubts.add(name(gpu), l.origin,
                   "has a link that does not say where to; what the others say is taken");
        without_target.insert(gpu);
        return true;
      }
      if (other_end(gpu, l) == static_cast<int>(gpu)) {
        doubts.add(name(gpu), l.origin, "has a link to itself; it is left out");
        return true;
      }
      return false;
    });
    for (GpuLinkRecord& l : links(gpu)) {
      // What the two ends say is compared later; a link that is negative says nothing.
      if (l.count < 0 || l.count > 1'000'000) l.count = 0;
    }
  }

  /// Links to what the source does not have: another container's GPU, or a device that was lost.
  void drop_dangling() {
    std::map<BusId, std::set<std::size_t>> unknown;
    std::set<BusId> called_gpus, called_switches, switches, gone;
    for (auto& [key, gpu] : gpus) {
      for (const GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c || other_end(gpu, l) >= 0) continue;
        if (to_switch(gpu, l)) called_switches.insert(*l.target);
        if (to_switch(gpu, l) || l.target_class == kProcessorClass) continue;
        unknown[*l.target].insert(gpu);
        if (is_gpu_class(l.target_class)) called_gpus.insert(*l.target);
      }
    }
    for (const auto& [target, from] : unknown) {
      // What another GPU calls a switch is one, and what many link to and no class tells.
      const bool like_switch =
          called_switches.contains(target) || (from.size() >= 3 && !called_gpus.contains(target));
      std::string names;
      for (const std::size_t gpu : from) names += (names.empty() ? "" : ", ") + name(gpu);
      doubts.add(text_of(target), records.devices[*from.begin()].gpu->origin,
                 fmt::format("is where links of {} end, but there is no such device; {}", names,
                             like_switch ? "it is taken as a switch" : "they are left out"));
      (like_switch ? switches : gone).insert(target);
    }
    for (auto& [key, gpu] : gpus) {
      std::erase_if(links(gpu), [&, from = gpu](const GpuLinkRecord& l) {
        return l.target && other_end(from, l) < 0 && gone.contains(*l.target);
      });
      for (GpuLinkRecord& l : links(gpu)) {
        if (l.target && switches.contains(*l.target)) l.target_class = kSwitchClass;
      }
    }
  }

  /// One target in several records of a GPU.
  void join_twins(std::size_t gpu) {
    std::map<std::pair<Kind, BusId>, std::size_t> known;
    std::vector<GpuLinkRecord> kept;
    for (const GpuLinkRecord& l : links(gpu)) {
      const bool is_new =
          l.kind == Kind::c2c || known.try_emplace({l.kind, *l.target}, kept.size()).second;
      if (is_new) {
        kept.push_back(l);
        continue;
      }
      doubts.add(fmt::format("{} -> {}", name(gpu), text_of(*l.target)), l.origin,
                 "is there twice; the first record counts");
    }
    links(gpu) = std::move(kept);
  }

  std::int64_t links_besides(std::size_t from, std::size_t to, Kind kind) {
    std::int64_t sum = 0;
    for (const GpuLinkRecord& l : links(from)) {
      if (l.kind == kind && l.target != records.devices[to].bus) sum += l.count;
    }
    return sum;
  }

  bool fits(std::size_t a, std::size_t b, Kind kind, std::int64_t count) {
    return links_besides(a, b, kind) + count <= most_links(a) &&
           links_besides(b, a, kind) + count <= most_links(b);
  }

  void compare_ends() {
    for (const Kind kind : {Kind::nvlink, Kind::xgmi}) {
      std::vector<std::int64_t> counts;
      std::set<std::pair<std::size_t, std::size_t>> pairs;
      for (auto& [key, gpu] : gpus) {
        for (const GpuLinkRecord& l : links(gpu)) {
          const int other = other_end(gpu, l);
          if (l.kind != kind || other < 0) continue;
          const auto o = static_cast<std::size_t>(other);
          pairs.insert({std::min(gpu, o), std::max(gpu, o)});
          counts.push_back(l.count);
        }
      }
      const auto usual = common(counts);
      for (const auto& [a, b] : pairs) compare_pair(a, b, kind, usual);
    }
  }

  void compare_pair(std::size_t a, std::size_t b, Kind kind, const Maybe<std::int64_t>& usual) {
    // MIG devices have no links, whatever a record says. One that says it is enough (build.cpp).
    if (records.devices[a].gpu->mig || records.devices[b].gpu->mig) return;
    if (parts_.contains(a) || parts_.contains(b)) return;
    GpuLinkRecord* const there = link_to(a, b, kind);
    GpuLinkRecord* const back = link_to(b, a, kind);
    const std::int64_t from_a = there == nullptr ? 0 : there->count;
    const std::int64_t from_b = back == nullptr ? 0 : back->count;
    if (from_a == from_b && from_a > 0) return;
    const std::int64_t more = std::max(from_a, from_b), less = std::min(from_a, from_b);
    std::int64_t taken = more;
    if (usual && (*usual == more || (*usual == less && less > 0))) {
      taken = *usual;
    } else if (more == 0 && usual) {
      taken = *usual;
    } else if (less > 0 && !fits(a, b, kind, more)) {
      taken = less;
    }
    const Origin origin = (there != nullptr ? there : back)->origin;
    if (!is_lost(a) && !is_lost(b)) {
      doubts.add(
          fmt::format("{} -> {}", name(a), name(b)), origin,
          fmt::format("has {} links, back there are {}; {} are taken", from_a, from_b, taken));
    }
    set(a, b, kind, taken, back);
    set(b, a, kind, taken, link_to(a, b, kind));
  }

  void set(std::size_t from, std::size_t to, Kind kind, std::int64_t count,
           const GpuLinkRecord* like) {
    GpuLinkRecord* const known = link_to(from, to, kind);
    if (known != nullptr) {
      known->count = count;
      return;
    }
    GpuLinkRecord l;
    if (like != nullptr) l = *like;
    l.kind = kind;
    l.target = records.devices[to].bus;
    l.target_class = records.devices[to].pci_class;
    l.count = count;
    links(from).push_back(l);
  }

  /// GPUs of a superchip have equally many lanes to their processor.
  void compare_c2c() {
    std::vector<std::pair<std::int64_t, std::int64_t>> values;
    for (auto& [key, gpu] : gpus) {
      for (const GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c) values.emplace_back(l.count, l.bandwidth);
      }
    }
    const auto usual = common(values);
    for (auto& [key, gpu] : gpus) {
      std::vector<GpuLinkRecord*> own;
      for (GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c) own.push_back(&l);
      }
      if (own.empty() && usual && 2 * values.size() > gpus.size()) {
        if (!is_lost(gpu)) {
          doubts.add(name(gpu), records.devices[gpu].gpu->origin,
                     "has no C2C link to its processor, unlike the others; theirs is taken");
        }
        GpuLinkRecord l;
        l.kind = Kind::c2c;
        l.count = usual->first;
        l.bandwidth = usual->second;
        l.origin = records.devices[gpu].gpu->origin;
        links(gpu).push_back(l);
        continue;
      }
      if (own.size() > 1) {
        doubts.add(name(gpu), own[1]->origin, "has two C2C links; the first one counts");
        const GpuLinkRecord first = *own.front();
        std::erase_if(links(gpu), [](const GpuLinkRecord& l) { return l.kind == Kind::c2c; });
        links(gpu).push_back(first);
        own = {&links(gpu).back()};
      }
      for (GpuLinkRecord* l : own) {
        const bool odd = usual && std::pair(l->count, l->bandwidth) != *usual;
        const bool empty = l->count <= 0 || l->count > 1000 || l->bandwidth < 0;
        if (!odd && !empty) continue;
        const auto count = usual ? usual->first : 1;
        const auto bandwidth = usual ? usual->second : static_cast<std::int64_t>(kC2cLink * 1000);
        doubts.add(name(gpu), l->origin,
                   fmt::format("says C2C of {} x {} MB/s; {} x {} is taken", l->count, l->bandwidth,
                               count, bandwidth));
        l->count = count;
        l->bandwidth = bandwidth;
      }
    }
  }

  std::set<std::size_t> parts_;  // of divided GPUs
};

}  // namespace

void check_gpu_links(Records& records, Doubts& doubts) { GpuLinkCheck(records, doubts).run(); }

}  // namespace tutti::topology

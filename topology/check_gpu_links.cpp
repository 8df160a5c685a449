// NVLink, xGMI and C2C; see check.h. Both ends of a link have a record of it, GPUs of one machine
// are alike, and a model has so many links and no more: with these three a single wrong record is
// found and outvoted.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "topology/check.h"
#include "topology/divided.h"

namespace tutti::topology {
namespace {

using Kind = GpuLinkRecord::Kind;

// Where the model is not known: no GPU has more.
constexpr std::int64_t kMostLinks = 18;
constexpr std::uint32_t kSwitchClass = 0x068000;
constexpr std::uint32_t kProcessorClass = 0x068001;

class GpuLinkCheck {
 public:
  GpuLinkCheck(Records& records, Doubts& doubts) : r_(records), doubts_(doubts) {
    for (std::size_t i = 0; i < r_.devices.size(); ++i) {
      const DeviceRecord& d = r_.devices[i];
      if (d.gpu && d.bus) gpus_[{host_of(r_, d), *d.bus}] = i;
    }
    for (const DividedGpu& device : divided_gpus(r_)) {
      parts_.insert(device.parts.begin(), device.parts.end());
    }
  }

  void run() {
    for (auto& [key, index] : gpus_) drop_unusable(index);
    drop_dangling();
    find_hidden_switches();
    for (auto& [key, index] : gpus_) join_twins(index);
    compare_ends();
    compare_switch_links();
    compare_c2c();
  }

 private:
  std::vector<GpuLinkRecord>& links(std::size_t gpu) { return r_.devices[gpu].gpu->links; }
  std::string name(std::size_t gpu) const { return name_of(r_.devices[gpu]); }
  /// That has been said, and with it that its links are missing.
  bool is_lost(std::size_t gpu) const {
    return r_.devices[gpu].gpu->lost || spoken_of_.contains(gpu);
  }

  std::int64_t most_links(std::size_t gpu) const {
    const int links = model_of(r_.devices[gpu]).links;
    return links > 0 ? links : kMostLinks;
  }

  /// The GPU at the other end; -1 where there is none.
  int other_end(std::size_t gpu, const GpuLinkRecord& link) const {
    if (!link.target) return -1;
    const auto at = gpus_.find({host_of(r_, r_.devices[gpu]), *link.target});
    return at == gpus_.end() ? -1 : static_cast<int>(at->second);
  }

  bool to_switch(std::size_t gpu, const GpuLinkRecord& l) const {
    return l.kind == Kind::nvlink && l.target && other_end(gpu, l) < 0 &&
           (l.target_class == kSwitchClass || l.target->is_nameless_switch());
  }

  void drop_unusable(std::size_t gpu) {
    std::erase_if(links(gpu), [&](const GpuLinkRecord& l) {
      if (l.kind == Kind::c2c) return false;
      if (!l.target) {
        doubts_.add(name(gpu), l.origin,
                    "has a link that does not say where to; what the others say is taken");
        spoken_of_.insert(gpu);
        return true;
      }
      if (other_end(gpu, l) == static_cast<int>(gpu)) {
        doubts_.add(name(gpu), l.origin, "has a link to itself; it is left out");
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
    std::set<BusId> called_gpus, switches, gone;
    for (auto& [key, gpu] : gpus_) {
      for (const GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c || other_end(gpu, l) >= 0 || to_switch(gpu, l)) continue;
        if (l.target_class == kProcessorClass) continue;
        unknown[*l.target].insert(gpu);
        if (is_gpu_class(l.target_class)) called_gpus.insert(*l.target);
      }
    }
    for (const auto& [target, from] : unknown) {
      // What many link to, and no class tells, is a switch.
      const bool like_switch = from.size() >= 3 && !called_gpus.contains(target);
      std::string names;
      for (const std::size_t gpu : from) names += (names.empty() ? "" : ", ") + name(gpu);
      doubts_.add(text_of(target), r_.devices[*from.begin()].gpu->origin,
                  fmt::format("is where links of {} end, but there is no such device; {}", names,
                              like_switch ? "it is taken as a switch" : "they are left out"));
      (like_switch ? switches : gone).insert(target);
    }
    for (auto& [key, gpu] : gpus_) {
      std::erase_if(links(gpu), [&, from = gpu](const GpuLinkRecord& l) {
        return l.target && other_end(from, l) < 0 && gone.contains(*l.target);
      });
      for (GpuLinkRecord& l : links(gpu)) {
        if (l.target && switches.contains(*l.target)) l.target_class = kSwitchClass;
      }
    }
  }

  /// GPUs that list all others with as many links as they have: the links go to switches, which the
  /// source does not know (or calls GPUs).
  void find_hidden_switches() {
    std::map<int, std::vector<std::size_t>> by_host;
    for (auto& [key, gpu] : gpus_) by_host[key.first].push_back(gpu);
    for (const auto& [host, all] : by_host) {
      std::vector<std::size_t> beyond;
      std::vector<std::int64_t> counts;
      bool called_switches = false;
      for (const std::size_t gpu : all) {
        std::int64_t total = 0;
        int peers = 0;
        for (const GpuLinkRecord& l : links(gpu)) {
          if (l.kind != Kind::nvlink || other_end(gpu, l) < 0) continue;
          called_switches = called_switches || l.target_class == kSwitchClass;
          total += l.count;
          ++peers;
          counts.push_back(l.count);
        }
        if (peers >= 2 && total > most_links(gpu)) beyond.push_back(gpu);
      }
      const auto count = common(counts);
      if (2 * beyond.size() > all.size() && beyond.size() >= 3 && count) {
        replace_by_switch(all, beyond, *count);
      } else if (called_switches) {
        for (const std::size_t gpu : all) {
          for (GpuLinkRecord& l : links(gpu)) {
            if (l.target_class != kSwitchClass || other_end(gpu, l) < 0) continue;
            doubts_.add(name(gpu), l.origin, "calls another GPU a switch; it is taken as the GPU");
            l.target_class = 0x030200;
          }
        }
      }
    }
  }

  void replace_by_switch(const std::vector<std::size_t>& all,
                         const std::vector<std::size_t>& beyond, std::int64_t count) {
    for (const std::size_t gpu : all) {
      const bool wrong = std::ranges::find(beyond, gpu) != beyond.end();
      if (wrong && !r_.format.starts_with("nvidia-smi")) {
        doubts_.add(name(gpu), r_.devices[gpu].gpu->origin,
                    fmt::format("would have {} NVLinks to each other GPU, but it can have {}; they "
                                "are taken as {} to switches",
                                count, most_links(gpu), std::min(count, most_links(gpu))));
      }
      for (const std::size_t other : all) {
        const GpuLinkRecord* const l = other == gpu ? nullptr : link_to(gpu, other, Kind::nvlink);
        const std::int64_t said = l == nullptr ? 0 : l->count;
        if (other == gpu || said == count || is_lost(gpu)) continue;
        doubts_.add(
            fmt::format("{} -> {}", name(gpu), name(other)), r_.devices[gpu].gpu->origin,
            fmt::format("has {} links, most others {}; it is taken as they are", said, count));
      }
      std::erase_if(links(gpu), [&](const GpuLinkRecord& l) {
        return l.kind == Kind::nvlink && other_end(gpu, l) >= 0;
      });
      GpuLinkRecord l;
      l.target = BusId{0xfffffff, 0xff, 0xff, 0};
      l.target_class = kSwitchClass;
      l.count = std::min(count, most_links(gpu));
      l.origin = r_.devices[gpu].gpu->origin;
      links(gpu).push_back(l);
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
      doubts_.add(fmt::format("{} -> {}", name(gpu), text_of(*l.target)), l.origin,
                  "is there twice; the first record counts");
    }
    links(gpu) = std::move(kept);
  }

  GpuLinkRecord* link_to(std::size_t from, std::size_t to, Kind kind) {
    for (GpuLinkRecord& l : links(from)) {
      if (l.kind == kind && l.target == r_.devices[to].bus) return &l;
    }
    return nullptr;
  }

  std::int64_t links_besides(std::size_t from, std::size_t to, Kind kind) {
    std::int64_t sum = 0;
    for (const GpuLinkRecord& l : links(from)) {
      if (l.kind == kind && l.target != r_.devices[to].bus) sum += l.count;
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
      for (auto& [key, gpu] : gpus_) {
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
    // MIG's have none, whoever says so; of a divided GPU one part that says it is enough
    // (build.cpp).
    if (r_.devices[a].gpu->mig || r_.devices[b].gpu->mig) return;
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
      doubts_.add(
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
    l.target = r_.devices[to].bus;
    l.target_class = r_.devices[to].pci_class;
    l.count = count;
    links(from).push_back(l);
  }

  /// All GPUs of a host have equally many links to switches.
  void compare_switch_links() {
    std::map<int, std::vector<std::size_t>> by_host;
    for (auto& [key, gpu] : gpus_) {
      if (!r_.devices[gpu].gpu->mig) by_host[key.first].push_back(gpu);
    }
    for (const auto& [host, all] : by_host) {
      std::map<std::size_t, std::int64_t> sums;
      for (const std::size_t gpu : all) {
        std::int64_t sum = 0;
        bool any = false;
        for (const GpuLinkRecord& l : links(gpu)) {
          if (!to_switch(gpu, l)) continue;
          sum += l.count;
          any = true;
        }
        if (any || sum > 0) sums[gpu] = sum;
      }
      if (sums.empty()) continue;
      std::vector<std::int64_t> counts;
      for (const std::size_t gpu : all) counts.push_back(sums.contains(gpu) ? sums[gpu] : 0);
      auto usual = common(counts);
      if (!usual || *usual == 0) {
        // Two that differ: the model decides, else the one that has more.
        const std::int64_t most = std::ranges::max(counts);
        usual = std::min(most, most_links(all.front()));
        if (*usual == 0) usual = most_links(all.front());
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (counts[i] == *usual) continue;
        if (!is_lost(all[i])) {
          doubts_.add(fmt::format("{}", name(all[i])), r_.devices[all[i]].gpu->origin,
                      fmt::format("has {} NVLinks to switches, the others {}; {} are taken",
                                  counts[i], *usual, *usual));
        }
        make_switch_links(all[i], all, *usual, host);
      }
    }
  }

  /// As another GPU has them, which has as many as is usual.
  void make_switch_links(std::size_t gpu, const std::vector<std::size_t>& all, std::int64_t usual,
                         int) {
    std::vector<GpuLinkRecord> like;
    for (const std::size_t other : all) {
      std::vector<GpuLinkRecord> its;
      std::int64_t sum = 0;
      for (const GpuLinkRecord& l : links(other)) {
        if (other == gpu || !to_switch(other, l)) continue;
        its.push_back(l);
        sum += l.count;
      }
      if (sum == usual) {
        like = its;
        break;
      }
    }
    if (like.empty()) {
      GpuLinkRecord l;
      l.target = BusId{0xfffffff, 0xff, 0xff, 0};
      l.target_class = kSwitchClass;
      l.count = usual;
      like.push_back(l);
      for (const GpuLinkRecord& own : links(gpu)) {
        if (to_switch(gpu, own)) like.front().target = own.target;
      }
    }
    std::erase_if(links(gpu), [&](const GpuLinkRecord& l) { return to_switch(gpu, l); });
    for (GpuLinkRecord& l : like) l.origin = r_.devices[gpu].gpu->origin;
    links(gpu).insert(links(gpu).end(), like.begin(), like.end());
  }

  /// GPUs of a superchip have equally many lanes to their processor.
  void compare_c2c() {
    std::vector<std::pair<std::int64_t, std::int64_t>> values;
    for (auto& [key, gpu] : gpus_) {
      for (const GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c) values.emplace_back(l.count, l.bandwidth);
      }
    }
    const auto usual = common(values);
    for (auto& [key, gpu] : gpus_) {
      std::vector<GpuLinkRecord*> own;
      for (GpuLinkRecord& l : links(gpu)) {
        if (l.kind == Kind::c2c) own.push_back(&l);
      }
      if (own.empty() && usual && 2 * values.size() > gpus_.size()) {
        if (!is_lost(gpu)) {
          doubts_.add(name(gpu), r_.devices[gpu].gpu->origin,
                      "has no C2C link to its processor, unlike the others; theirs is taken");
        }
        GpuLinkRecord l;
        l.kind = Kind::c2c;
        l.count = usual->first;
        l.bandwidth = usual->second;
        l.origin = r_.devices[gpu].gpu->origin;
        links(gpu).push_back(l);
        continue;
      }
      if (own.size() > 1) {
        doubts_.add(name(gpu), own[1]->origin, "has two C2C links; the first one counts");
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
        doubts_.add(name(gpu), l->origin,
                    fmt::format("says C2C of {} x {} MB/s; {} x {} is taken", l->count,
                                l->bandwidth, count, bandwidth));
        l->count = count;
        l->bandwidth = bandwidth;
      }
    }
  }

  Records& r_;
  Doubts& doubts_;
  std::map<std::pair<int, BusId>, std::size_t> gpus_;  // by host and address
  std::set<std::size_t> parts_;                        // of divided GPUs
  std::set<std::size_t> spoken_of_;                    // with links that could not be read
};

}  // namespace

void check_gpu_links(Records& records, Doubts& doubts) { GpuLinkCheck(records, doubts).run(); }

}  // namespace tutti::topology

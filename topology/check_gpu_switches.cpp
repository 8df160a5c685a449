// See check.h. A source may not know NVSwitches, or call one a GPU; GPUs have equally many links.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "topology/gpu_links.h"

namespace tutti::topology {
namespace {

void replace_by_switch(GpuLinks& g, const std::vector<std::size_t>& all,
                       const std::vector<std::size_t>& beyond, std::int64_t count) {
  for (const std::size_t gpu : all) {
    const bool wrong = std::ranges::find(beyond, gpu) != beyond.end();
    if (wrong && !g.records.format.starts_with("nvidia-smi")) {
      g.doubts.add(g.name(gpu), g.records.devices[gpu].gpu->origin,
                   fmt::format("would have {} NVLinks to each other GPU, but it can have {}; they "
                               "are taken as {} to switches",
                               count, g.most_links(gpu), std::min(count, g.most_links(gpu))));
    }
    for (const std::size_t other : all) {
      const GpuLinkRecord* const l =
          other == gpu ? nullptr : g.link_to(gpu, other, GpuLinks::Kind::nvlink);
      const std::int64_t said = l == nullptr ? 0 : l->count;
      if (other == gpu || said == count || g.is_lost(gpu)) continue;
      g.doubts.add(
          fmt::format("{} -> {}", g.name(gpu), g.name(other)), g.records.devices[gpu].gpu->origin,
          fmt::format("has {} links, most others {}; it is taken as they are", said, count));
    }
    std::erase_if(g.links(gpu), [&](const GpuLinkRecord& l) {
      return l.kind == GpuLinks::Kind::nvlink && g.other_end(gpu, l) >= 0;
    });
    GpuLinkRecord l;
    l.target = BusId{0xfffffff, 0xff, 0xff, 0};
    l.target_class = GpuLinks::kSwitchClass;
    l.count = std::min(count, g.most_links(gpu));
    l.origin = g.records.devices[gpu].gpu->origin;
    g.links(gpu).push_back(l);
  }
}

/// As another GPU has them, which has as many as is usual.
void make_switch_links(GpuLinks& g, std::size_t gpu, const std::vector<std::size_t>& all,
                       std::int64_t usual) {
  std::vector<GpuLinkRecord> like;
  for (const std::size_t other : all) {
    std::vector<GpuLinkRecord> its;
    std::int64_t sum = 0;
    for (const GpuLinkRecord& l : g.links(other)) {
      if (other == gpu || !g.to_switch(other, l)) continue;
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
    l.target_class = GpuLinks::kSwitchClass;
    l.count = usual;
    like.push_back(l);
    for (const GpuLinkRecord& own : g.links(gpu)) {
      if (g.to_switch(gpu, own)) like.front().target = own.target;
    }
  }
  std::erase_if(g.links(gpu), [&](const GpuLinkRecord& l) { return g.to_switch(gpu, l); });
  for (GpuLinkRecord& l : like) l.origin = g.records.devices[gpu].gpu->origin;
  g.links(gpu).insert(g.links(gpu).end(), like.begin(), like.end());
}

}  // namespace

void find_hidden_switches(GpuLinks& g) {
  std::map<int, std::vector<std::size_t>> by_host;
  for (auto& [key, gpu] : g.gpus) by_host[key.first].push_back(gpu);
  for (const auto& [host, all] : by_host) {
    std::vector<std::size_t> beyond;
    std::vector<std::int64_t> counts;
    bool called_switches = false;
    for (const std::size_t gpu : all) {
      std::int64_t total = 0;
      int peers = 0;
      for (const GpuLinkRecord& l : g.links(gpu)) {
        if (l.kind != GpuLinks::Kind::nvlink || g.other_end(gpu, l) < 0) continue;
        called_switches = called_switches || l.target_class == GpuLinks::kSwitchClass;
        total += l.count;
        ++peers;
        counts.push_back(l.count);
      }
      if (peers >= 2 && total > g.most_links(gpu)) beyond.push_back(gpu);
    }
    const auto count = common(counts);
    if (2 * beyond.size() > all.size() && beyond.size() >= 3 && count) {
      replace_by_switch(g, all, beyond, *count);
    } else if (called_switches) {
      for (const std::size_t gpu : all) {
        for (GpuLinkRecord& l : g.links(gpu)) {
          if (l.target_class != GpuLinks::kSwitchClass || g.other_end(gpu, l) < 0) continue;
          g.doubts.add(g.name(gpu), l.origin, "calls another GPU a switch; it is taken as the GPU");
          l.target_class = 0x030200;
        }
      }
    }
  }
}

void compare_switch_links(GpuLinks& g) {
  std::map<int, std::vector<std::size_t>> by_host;
  std::map<BusId, std::set<std::size_t>> users;  // of each switch
  for (auto& [key, gpu] : g.gpus) {
    if (!g.records.devices[gpu].gpu->mig) by_host[key.first].push_back(gpu);
    for (const GpuLinkRecord& l : g.links(gpu)) {
      if (g.to_switch(gpu, l)) users[*l.target].insert(gpu);
    }
  }
  for (const auto& [host, all] : by_host) {
    std::vector<std::int64_t> counts;
    bool any = false;
    for (const std::size_t gpu : all) {
      std::int64_t& sum = counts.emplace_back();
      for (const GpuLinkRecord& l : g.links(gpu)) {
        if (!g.to_switch(gpu, l)) continue;
        any = true;
        // Of three GPUs or more none has a switch to itself.
        if (g.gpus.size() < 3 || users[*l.target].size() > 1) sum += l.count;
      }
    }
    if (!any) continue;
    auto usual = common(counts);
    if (!usual || *usual == 0) {
      // Two that differ: the model decides, else the one that has more.
      usual = std::min(std::ranges::max(counts), g.most_links(all.front()));
      if (*usual == 0) usual = g.most_links(all.front());
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (counts[i] == *usual) continue;
      if (!g.is_lost(all[i])) {
        g.doubts.add(fmt::format("{}", g.name(all[i])), g.records.devices[all[i]].gpu->origin,
                     fmt::format("has {} NVLinks to switches, the others {}; {} are taken",
                                 counts[i], *usual, *usual));
      }
      make_switch_links(g, all[i], all, *usual);
    }
  }
}

}  // namespace tutti::topology

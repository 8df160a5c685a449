// See fair_share.h. Progressive filling: the link that offers its flows the least fixes theirs.
#include "collectives/model/fair_share.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti {

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      on_(capacities_.size()),
      is_touched_(capacities_.size()),
      left_(capacities_.size()),
      users_(capacities_.size()) {}

void FairShare::touch(int link) {
  if (is_touched_[at(link)] != 0) return;
  is_touched_[at(link)] = 1;
  touched_.push_back(link);
}

int FairShare::start(double now, double bytes, std::span<const int> links, int order) {
  int f = static_cast<int>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    f = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[at(f)];
  flow.left = bytes;
  flow.rate = 0;
  flow.since = now;
  flow.order = order;
  flow.links.assign(links.begin(), links.end());
  for (const int l : links) {
    on_[at(l)].push_back(f);
    touch(l);
  }
  return f;
}

void FairShare::end(int f) {
  Flow& flow = flows_[at(f)];
  for (const int l : flow.links) {
    auto& on = on_[at(l)];
    *std::ranges::find(on, f) = on.back();
    on.pop_back();
    touch(l);
  }
  ++flow.version;
  free_.push_back(f);
}

const std::vector<FairShare::Change>& FairShare::update(double now) {
  changes_.clear();
  while (!touched_.empty()) {
    // Everything that shares a link with what shares a link with ...
    part_.clear();
    links_.clear();
    std::vector<int>& ahead = links_;
    const int first = touched_.back();
    touched_.pop_back();
    if (is_touched_[at(first)] != 1) {
      is_touched_[at(first)] = 0;
      continue;
    }
    is_touched_[at(first)] = 2;
    ahead.push_back(first);
    for (std::size_t i = 0; i < ahead.size(); ++i) {
      for (const int f : on_[at(ahead[i])]) {
        Flow& flow = flows_[at(f)];
        if (flow.seen) continue;
        flow.seen = true;
        part_.push_back(f);
        for (const int l : flow.links) {
          if (is_touched_[at(l)] == 2) continue;
          if (is_touched_[at(l)] == 0) touched_.push_back(l);  // to be wiped
          is_touched_[at(l)] = 2;
          ahead.push_back(l);
        }
      }
    }
    is_touched_[at(first)] = 0;
    share(now);
  }
  return changes_;
}

void FairShare::share(double now) {
  // The order in which flows came must not matter, or equal runs would differ.
  std::ranges::sort(part_, [&](int a, int b) {
    return flows_[at(a)].order != flows_[at(b)].order ? flows_[at(a)].order < flows_[at(b)].order
                                                      : a < b;
  });
  for (const int l : links_) left_[at(l)] = capacities_[at(l)];
  for (std::size_t begin = 0; begin < part_.size();) {
    std::size_t end = begin;
    while (end < part_.size() && flows_[at(part_[end])].order == flows_[at(part_[begin])].order) {
      ++end;
    }
    const std::span<const int> group(part_.data() + begin, end - begin);
    begin = end;
    std::size_t open = group.size();
    for (const int f : group) {
      flows_[at(f)].fixed = false;
      for (const int l : flows_[at(f)].links) ++users_[at(l)];
    }
    while (open > 0) {
      double least = std::numeric_limits<double>::infinity();
      for (const int l : links_) {
        if (users_[at(l)] > 0) least = std::min(least, left_[at(l)] / users_[at(l)]);
      }
      least = std::max(least, 0.0);
      bool any = false;
      for (const int f : group) {
        Flow& flow = flows_[at(f)];
        if (flow.fixed) continue;
        const bool limited = std::ranges::any_of(flow.links, [&](int l) {
          return left_[at(l)] / users_[at(l)] <= least * (1 + 1e-9) + 1e-12;
        });
        if (!limited && !flow.links.empty()) continue;
        any = true;
        flow.fixed = true;
        --open;
        const double rate = least;
        if (std::abs(rate - flow.rate) > 1e-9 * rate || rate == 0) {
          flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
          flow.since = now;
          flow.rate = rate;
          ++flow.version;
          if (rate > 0) changes_.push_back({f, now + flow.left / rate, flow.version});
        }
        for (const int l : flow.links) {
          left_[at(l)] = std::max(0.0, left_[at(l)] - rate);
          --users_[at(l)];
        }
      }
      if (!any) break;
    }
  }
  for (const int f : part_) flows_[at(f)].seen = false;
}

}  // namespace tutti

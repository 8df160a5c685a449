#include "parallel/reshard/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::parallel::reshard {
namespace {

bool comes_before(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.dimensions(); ++d) {
    if (a[d].begin != b[d].begin) return a[d].begin < b[d].begin;
    if (a[d].end != b[d].end) return a[d].end < b[d].end;
  }
  return false;
}

/// A part for each box that differs from the others.
std::vector<Part> different_boxes(std::span<const Piece> pieces) {
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return comes_before(pieces[a].box, pieces[b].box);
  });
  std::vector<Part> parts;
  for (const std::uint32_t i : order) {
    if (pieces[i].box.empty()) continue;
    if (parts.empty() || !(parts.back().box == pieces[i].box)) {
      parts.push_back({pieces[i].box, {}});
    }
    parts.back().pieces.push_back(i);
  }
  return parts;
}

void sort_by(std::vector<Part>& parts, std::size_t dimension) {
  std::ranges::stable_sort(parts, {}, [&](const Part& p) { return p.box[dimension].begin; });
}

std::vector<std::uint32_t> joined(const std::vector<std::uint32_t>& a,
                                  const std::vector<std::uint32_t>& b) {
  std::vector<std::uint32_t> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

/// Adds a part to `active`, whose parts do not overlap, and cuts up what it overlaps.
void insert(std::vector<Part>& active, const Part& part) {
  std::vector<Box> rest{part.box};
  std::vector<Part> cut;
  for (std::size_t i = 0; i < active.size();) {
    if (!overlap(active[i].box, part.box)) {
      ++i;
      continue;
    }
    Part old = std::move(active[i]);
    active[i] = std::move(active.back());
    active.pop_back();
    const Box common = intersection(old.box, part.box);
    for (const Box& box : without(old.box, common)) cut.push_back({box, old.pieces});
    std::vector<Box> remaining;
    for (const Box& box : rest) {
      for (const Box& b : without(box, common)) remaining.push_back(b);
    }
    rest = std::move(remaining);
    cut.push_back({common, joined(old.pieces, part.pieces)});
  }
  for (const Box& box : rest) cut.push_back({box, part.pieces});
  for (Part& p : cut) active.push_back(std::move(p));
}

}  // namespace

std::size_t most_cut(std::span<const Part> parts) {
  std::size_t best = 0, most = 0;
  for (std::size_t d = 0; !parts.empty() && d < parts.front().box.dimensions(); ++d) {
    std::vector<std::uint64_t> begins;
    for (const Part& p : parts) begins.push_back(p.box[d].begin);
    std::ranges::sort(begins);
    const auto places =
        static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (places > most) {
      most = places;
      best = d;
    }
  }
  return best;
}

std::vector<Part> partition(std::span<const Piece> pieces) {
  std::vector<Part> parts = different_boxes(pieces);
  if (parts.size() < 2) return parts;
  const std::size_t by = most_cut(parts);
  sort_by(parts, by);
  // `active`: the parts that a later box may overlap.
  std::vector<Part> done, active;
  for (const Part& part : parts) {
    std::erase_if(active, [&](Part& p) {
      if (p.box[by].end > part.box[by].begin) return false;
      done.push_back(std::move(p));
      return true;
    });
    insert(active, part);
  }
  for (Part& p : active) done.push_back(std::move(p));
  return done;
}

PartIndex::PartIndex(std::vector<Part>& parts) {
  if (!parts.empty() && parts.front().box.dimensions() > 0) {
    by_ = most_cut(parts);
    sort_by(parts, by_);
    for (const Part& p : parts) longest_ = std::max(longest_, p.box[by_].size());
  }
  parts_ = parts;
}

std::size_t PartIndex::first(const Box& box) const {
  const std::uint64_t from = box[by_].begin > longest_ ? box[by_].begin - longest_ : 0;
  const auto at =
      std::ranges::lower_bound(parts_, from, {}, [&](const Part& p) { return p.box[by_].begin; });
  return static_cast<std::size_t>(at - parts_.begin());
}

}  // namespace tutti::parallel::reshard

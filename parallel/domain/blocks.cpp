#include "parallel/domain/blocks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace tutti::parallel::domain {
namespace {

/// Numbers of cells stay so small that sums and products with windows fit into 64 bits.
constexpr std::int64_t kMostCells = 1'000'000'000;

MeshShape grid_of(int ranks, std::span<const Dimension> dimensions) {
  std::vector<MeshDimension> grid;
  for (const Dimension& d : dimensions) grid.push_back({d.name, d.ranks});
  if (grid.empty()) throw Error(ErrorCode::invalid_argument, "blocks without a dimension");
  return {ranks, std::move(grid)};
}

void fill_in(Dimension& d, int ranks) {
  const auto refuse = [&](const std::string& why) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("dimension {} of {} cells over {} ranks: {}", d.name, d.cells, ranks, why));
  };
  d.ranks = ranks;
  if (d.cells < 1 || d.cells > kMostCells) {
    refuse(fmt::format("there have to be 1 to {} cells", kMostCells));
  }
  const auto parts = static_cast<std::size_t>(ranks);
  if (!d.blocks.empty()) {
    if (d.blocks.size() != parts) {
      refuse(fmt::format("blocks of [{}] are {}; give one for each rank", fmt::join(d.blocks, ", "),
                         d.blocks.size()));
    }
    std::int64_t sum = 0;
    for (const std::int64_t cells : d.blocks) {
      if (cells < 0 || cells > d.cells) refuse(fmt::format("a block of {} cells", cells));
      sum += cells;
    }
    if (sum != d.cells) {
      refuse(fmt::format("blocks of [{}] have {} together", fmt::join(d.blocks, ", "), sum));
    }
    return;
  }
  if (d.cells < ranks) {
    refuse("some would have none; use fewer ranks, or name the blocks");
  }
  d.blocks.assign(parts, d.cells / ranks);
  std::for_each_n(d.blocks.begin(), d.cells % ranks, [](std::int64_t& cells) { ++cells; });
}

}  // namespace

Range intersection(Range a, Range b) {
  const Range both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return {both.begin, std::max(both.begin, both.end)};
}

std::int64_t cells(const Box& box) {
  std::int64_t product = 1;
  for (const Range& r : box) product *= r.size();
  return product;
}

std::vector<Box> without(const Box& outer, const Box& inner) {
  std::vector<Box> parts;
  Box rest = outer;
  for (std::size_t d = 0; d < outer.size(); ++d) {
    for (const Range side :
         {Range{outer[d].begin, inner[d].begin}, Range{inner[d].end, outer[d].end}}) {
      Box part = rest;
      part[d] = side;
      if (cells(part) > 0) parts.push_back(std::move(part));
    }
    rest[d] = inner[d];
  }
  return parts;
}

Blocks::Blocks(int ranks, std::vector<Dimension> dimensions)
    : dimensions_(std::move(dimensions)), grid_(grid_of(ranks, dimensions_)) {
  for (Dimension& d : dimensions_) fill_in(d, grid_.size(d.name));
}

Range Blocks::range(std::size_t d, int coordinate) const {
  const auto& blocks = dimensions_[d].blocks;
  const auto at = blocks.begin() + coordinate;
  const std::int64_t begin = std::accumulate(blocks.begin(), at, std::int64_t{0});
  return {begin, begin + *at};
}

Box Blocks::box(int rank) const {
  const std::vector<int> at = grid_.coordinates(rank);
  Box box;
  for (std::size_t d = 0; d < at.size(); ++d) box.push_back(range(d, at[d]));
  return box;
}

}  // namespace tutti::parallel::domain

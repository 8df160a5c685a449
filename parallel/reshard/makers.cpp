// Layouts from what engines and frameworks say: meshes, units, owners.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "parallel/reshard/layout.h"
#include "parallel/sharded/layout.h"

namespace tutti::parallel::reshard {
namespace {

[[noreturn]] void refuse_tensor(const Tensor& tensor, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("layout: tensor '{}' {}", tensor.name, why));
}

/// The share with number `index` of `ranks` of the range.
Range share_of(const Tensor& tensor, Range range, const Placement& p, int index, int ranks) {
  const auto i = static_cast<std::uint64_t>(index), n = static_cast<std::uint64_t>(ranks);
  if (p.sizes.empty()) {
    const std::uint64_t each = (range.size() + n - 1) / n;
    const std::uint64_t begin = std::min(each * i, range.size());
    return {range.begin + begin, range.begin + std::min(begin + each, range.size())};
  }
  if (p.sizes.size() != n ||
      std::accumulate(p.sizes.begin(), p.sizes.end(), std::uint64_t{0}) != range.size()) {
    refuse_tensor(tensor, fmt::format("is cut in dimension {} into shares that are not {}, or do "
                                      "not add up to {}",
                                      p.dimension, n, range.size()));
  }
  const std::uint64_t begin =
      range.begin + std::accumulate(p.sizes.begin(), p.sizes.begin() + index, std::uint64_t{0});
  return {begin, begin + p.sizes[i]};
}

void check_sharding(const Tensor& tensor, const Sharding& s, std::uint64_t ranks) {
  if (s.placements.size() != s.mesh.size()) {
    refuse_tensor(tensor, fmt::format("has {} placements for a mesh of {} dimensions",
                                      s.placements.size(), s.mesh.size()));
  }
  if (!s.ranks.empty() && s.ranks.size() != ranks) {
    refuse_tensor(tensor, fmt::format("has {} ranks for a mesh of {}", s.ranks.size(), ranks));
  }
  for (const Placement& p : s.placements) {
    if (p.dimension >= static_cast<int>(tensor.shape.size()) || p.dimension < -1) {
      refuse_tensor(tensor, fmt::format("has no dimension {} to cut", p.dimension));
    }
  }
}

}  // namespace

Piece& add_piece(Layout& layout, const Tensor& tensor, int rank, const Box& box,
                 std::string_view buffer, std::uint64_t offset,
                 std::span<const std::uint64_t> strides) {
  Piece piece{.rank = rank, .buffer = layout.buffer(buffer), .offset = offset, .box = box};
  piece.strides = packed_strides(box);
  if (!strides.empty()) {
    if (strides.size() != box.dimensions()) {
      refuse_tensor(tensor, fmt::format("has a piece of {} dimensions with {} strides",
                                        box.dimensions(), strides.size()));
    }
    std::ranges::copy(strides, piece.strides.begin());
  }
  return layout.tensor(tensor).pieces.emplace_back(piece);
}

void add_replicated(Layout& layout, const Tensor& tensor, std::span<const int> ranks) {
  layout.tensor(tensor);
  if (tensor.elements() == 0) return;
  for (const int rank : ranks) {
    add_piece(layout, tensor, rank, Box::whole(tensor.shape), tensor.name);
  }
}

void add_sharded(Layout& layout, const Tensor& tensor, const Sharding& s) {
  constexpr std::uint64_t kMostRanks = 1u << 20;
  std::uint64_t ranks = 1;
  for (const int size : s.mesh) {
    if (size < 1 || static_cast<std::uint64_t>(size) > kMostRanks / ranks) {
      refuse_tensor(tensor, "has a mesh with a size that cannot be");
    }
    ranks *= static_cast<std::uint64_t>(size);
  }
  check_sharding(tensor, s, ranks);
  layout.tensor(tensor);
  for (std::uint64_t r = 0; r < ranks; ++r) {
    Box box = Box::whole(tensor.shape);
    std::uint64_t inner = ranks;
    for (std::size_t m = 0; m < s.mesh.size(); ++m) {
      const auto size = static_cast<std::uint64_t>(s.mesh[m]);
      inner /= size;
      const Placement& p = s.placements[m];
      if (p.dimension < 0) continue;
      Range& range = box[static_cast<std::size_t>(p.dimension)];
      range = share_of(tensor, range, p, static_cast<int>(r / inner % size), s.mesh[m]);
    }
    const int rank = s.ranks.empty() ? static_cast<int>(r) : s.ranks[r];
    if (!box.empty()) add_piece(layout, tensor, rank, box, tensor.name);
  }
}

void add_run(Layout& layout, const Tensor& tensor, int rank, std::uint64_t begin,
             std::uint64_t count, std::string_view buffer, std::uint64_t offset) {
  if (begin > tensor.elements() || count > tensor.elements() - begin) {
    refuse_tensor(tensor, fmt::format("has {} elements, and a run from {} on of {}",
                                      tensor.elements(), begin, count));
  }
  layout.tensor(tensor);
  // Each round takes the largest box that begins here: whole indices of a dimension, all of the
  // dimensions behind it, and one index of those before it.
  const std::size_t dimensions = tensor.shape.size();
  while (count > 0) {
    std::uint64_t inner = 1;  // elements of an index of dimension d
    std::size_t d = dimensions;
    while (d > 0 && begin % (inner * tensor.shape[d - 1]) == 0 &&
           count >= inner * tensor.shape[d - 1]) {
      inner *= tensor.shape[--d];
    }
    Box box = Box::whole(tensor.shape);
    std::uint64_t taken = inner, at = begin / inner;
    if (d > 0) {
      const std::uint64_t size = tensor.shape[d - 1], index = at % size;
      const std::uint64_t indices = std::min(size - index, count / inner);
      box[d - 1] = {index, index + indices};
      taken = indices * inner;
      at /= size;
      for (std::size_t o = d - 1; o-- > 0; at /= tensor.shape[o]) {
        box[o] = {at % tensor.shape[o], at % tensor.shape[o] + 1};
      }
    }
    add_piece(layout, tensor, rank, box, buffer, offset);
    begin += taken;
    count -= taken;
    offset += taken * size_of(tensor.type);
  }
}

void add_unit(Layout& layout, std::string_view unit, std::span<const Tensor> tensors,
              std::span<const int> ranks, parallel::Layout cut, std::uint64_t alignment) {
  if (ranks.empty() || alignment == 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("layout: unit '{}' has no ranks, or an alignment of 0", unit));
  }
  Unit declared{std::string(unit), {}};
  for (const Tensor& t : tensors) {
    if (t.type != tensors.front().type) refuse_tensor(t, "has another type than its unit");
    declared.parameters.push_back(
        {t.name, t.elements(), t.shape.empty() ? std::size_t{1} : t.shape.front()});
  }
  const UnitLayout places(declared, cut, ranks.size(), alignment);
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    layout.tensor(tensors[p]);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const LocalRange local = places.local(p, r);
      add_run(layout, tensors[p], ranks[r], local.begin, local.count, unit,
              local.shard_offset * size_of(tensors[p].type));
    }
  }
}

void add_owned(Layout& layout, const Tensor& tensor, int dimension, std::span<const int> owners) {
  const auto d = static_cast<std::size_t>(dimension);
  if (dimension < 0 || d >= tensor.shape.size() || owners.size() != tensor.shape[d]) {
    refuse_tensor(tensor, fmt::format("has no dimension {} of {} indices, which have owners",
                                      dimension, owners.size()));
  }
  layout.tensor(tensor);
  if (tensor.elements() == 0) return;
  std::vector<int> ranks(owners.begin(), owners.end());
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (const int rank : ranks) {
    // All that the rank has is one packed box.
    Box all = Box::whole(tensor.shape);
    all[d] = {0, static_cast<std::uint64_t>(std::ranges::count(owners, rank))};
    const Strides strides = packed_strides(all);
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < owners.size();) {
      std::uint64_t end = i;
      while (end < owners.size() && owners[end] == rank) ++end;
      if (end > i) {
        Box box = Box::whole(tensor.shape);
        box[d] = {i, end};
        add_piece(layout, tensor, rank, box, tensor.name,
                  before * strides[d] * size_of(tensor.type),
                  std::span(strides).first(box.dimensions()));
        before += end - i;
      }
      i = std::max(end, i + 1);
    }
  }
}

}  // namespace tutti::parallel::reshard

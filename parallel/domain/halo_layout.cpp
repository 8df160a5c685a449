#include "parallel/domain/halo_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/axis.h"

namespace tutti::parallel::domain {
namespace {

constexpr std::int64_t kWidestStencil = 1'000'000'000;

/// Rounds down, also numbers below 0.
std::int64_t divided(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

[[noreturn]] void refuse(const Dimension& d, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("dimension {} of {} cells: {}", d.name, d.cells, why));
}

void check(const Blocks& input, const HaloShape& shape) {
  if (shape.stencils.size() != input.dimensions().size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} stencils for {} dimensions; give one for each",
                            shape.stencils.size(), input.dimensions().size()));
  }
  double elements = static_cast<double>(shape.outer) * static_cast<double>(shape.inner);
  for (std::size_t d = 0; d < shape.stencils.size(); ++d) {
    const Dimension& dimension = input.dimensions()[d];
    const Stencil& s = shape.stencils[d];
    const auto possible = [](std::int64_t n, std::int64_t least) {
      return n >= least && n <= kWidestStencil;
    };
    if (!possible(s.kernel, 1) || !possible(s.stride, 1) || !possible(s.dilation, 1) ||
        !possible(s.padding, 0) || !possible(s.span(), 1)) {
      refuse(dimension, fmt::format("a stencil of kernel {}, stride {}, dilation {}, padding {}",
                                    s.kernel, s.stride, s.dilation, s.padding));
    }
    if (dimension.cells + 2 * s.padding < s.span()) {
      refuse(dimension, fmt::format("a stencil of {} cells is wider than the field with its "
                                    "padding of 2 x {} and leaves no output",
                                    s.span(), s.padding));
    }
    elements *= static_cast<double>(dimension.cells + 2 * s.span());
  }
  if (!(elements <= kMostElements)) {
    throw Error(ErrorCode::invalid_argument, "more elements than there can be");
  }
}

/// An output cell belongs to the rank that owns the middle of its stencil.
std::vector<std::int64_t> output_blocks(const Blocks& input, std::size_t d, const Stencil& s,
                                        std::int64_t outputs) {
  const Dimension& dimension = input.dimensions()[d];
  // The first output cell with its middle at `cell` or behind it.
  const auto first = [&](std::int64_t cell) {
    if (cell <= 0) return std::int64_t{0};
    if (cell >= dimension.cells) return outputs;
    const std::int64_t from = cell + s.padding - (s.span() - 1) / 2;
    return std::clamp<std::int64_t>(-divided(-from, s.stride), 0, outputs);
  };
  std::vector<std::int64_t> blocks;
  for (int c = 0; c < dimension.ranks; ++c) {
    const Range own = input.range(d, c);
    blocks.push_back(first(own.end) - first(own.begin));
  }
  return blocks;
}

Blocks output_of(const Blocks& input, const HaloShape& shape) {
  check(input, shape);
  std::vector<Dimension> dimensions(input.dimensions().begin(), input.dimensions().end());
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const Stencil& s = shape.stencils[d];
    const std::int64_t outputs = (dimensions[d].cells + 2 * s.padding - s.span()) / s.stride + 1;
    dimensions[d].blocks = output_blocks(input, d, s, outputs);
    dimensions[d].cells = outputs;
  }
  return {input.grid().ranks(), std::move(dimensions)};
}

}  // namespace

HaloLayout::HaloLayout(int ranks, const HaloShape& shape)
    : input_(ranks, shape.dimensions),
      stencils_(shape.stencils),
      output_(output_of(input_, shape)),
      corners_(shape.corners) {}

Box HaloLayout::reads(const Box& outputs) const {
  Box box;
  for (std::size_t d = 0; d < outputs.size(); ++d) {
    box.push_back(stencils_[d].reads(outputs[d]));
  }
  return box;
}

Range HaloLayout::padded(std::size_t d, int coordinate) const {
  const Range own = input_.range(d, coordinate), outputs = output_.range(d, coordinate);
  if (outputs.size() == 0) return own;
  const Range read = stencils_[d].reads(outputs);
  return {std::min(own.begin, read.begin), std::max(own.end, read.end)};
}

Range HaloLayout::in_field(std::size_t d, int coordinate) const {
  const Dimension& dimension = input_.dimensions()[d];
  const Range all = padded(d, coordinate);
  return dimension.edge == Edge::periodic ? all : intersection(all, {0, dimension.cells});
}

Box HaloLayout::padded(int rank) const {
  const std::vector<int> at = input_.grid().coordinates(rank);
  Box box;
  for (std::size_t d = 0; d < at.size(); ++d) box.push_back(padded(d, at[d]));
  return box;
}

Box HaloLayout::in_field(int rank) const {
  const std::vector<int> at = input_.grid().coordinates(rank);
  Box box;
  for (std::size_t d = 0; d < at.size(); ++d) box.push_back(in_field(d, at[d]));
  return box;
}

Box HaloLayout::interior(int rank) const {
  const Box own = input_.box(rank);
  Box inside = output_.box(rank);
  for (std::size_t d = 0; d < inside.size(); ++d) {
    const Dimension& dimension = input_.dimensions()[d];
    const bool zero = dimension.edge == Edge::zero;
    const bool first = zero && own[d].begin == 0, last = zero && own[d].end == dimension.cells;
    Range& r = inside[d];
    const auto begins_outside = [&](std::int64_t output) {
      return stencils_[d].reads({output, output + 1}).begin < own[d].begin;
    };
    const auto ends_outside = [&](std::int64_t output) {
      return stencils_[d].reads({output, output + 1}).end > own[d].end;
    };
    while (!first && r.size() > 0 && begins_outside(r.begin)) ++r.begin;
    while (!last && r.size() > 0 && ends_outside(r.end - 1)) --r.end;
  }
  return inside;
}

std::vector<Box> HaloLayout::border(int rank) const {
  return without(output_.box(rank), interior(rank));
}

std::vector<HaloMessage> HaloLayout::to(int rank) const {
  const Box own = input_.box(rank), filled = in_field(rank);
  const std::vector<int> at = input_.grid().coordinates(rank);
  std::vector<HaloMessage> messages;
  Box target = own;
  for (std::size_t d = 0; d < own.size(); ++d) {
    const Dimension& dimension = input_.dimensions()[d];
    // The field, over and over again: periodic edges lead to its copies.
    const std::int64_t copies_begin = divided(filled[d].begin, dimension.cells),
                       copies_end = divided(filled[d].end - 1, dimension.cells) + 1;
    for (std::int64_t copy = copies_begin; copy < copies_end; ++copy) {
      const std::int64_t shift = copy * dimension.cells;
      for (int c = 0; c < dimension.ranks; ++c) {
        if (copy == 0 && c == at[d]) continue;
        const Range its = input_.range(d, c);
        target[d] = intersection(filled[d], {its.begin + shift, its.end + shift});
        if (cells(target) == 0) continue;
        HaloMessage m{input_.grid().moved(rank, dimension.name, c), rank, d, target, target};
        m.source[d] = {target[d].begin - shift, target[d].end - shift};
        messages.push_back(std::move(m));
      }
    }
    target[d] = corners_ ? filled[d] : own[d];
  }
  return messages;
}

std::vector<HaloMessage> HaloLayout::from(int rank) const {
  std::vector<HaloMessage> messages;
  for (std::size_t d = 0; d < stencils_.size(); ++d) {
    const Dimension& dimension = input_.dimensions()[d];
    for (int c = 0; c < dimension.ranks; ++c) {
      const int peer = input_.grid().moved(rank, dimension.name, c);
      if (peer == rank) continue;
      for (HaloMessage& m : to(peer)) {
        if (m.from == rank && m.dimension == d) messages.push_back(std::move(m));
      }
    }
  }
  return messages;
}

}  // namespace tutti::parallel::domain

// Fields, blocks and stencils that the tests of domain parallelism go through, and the cells of a
// box.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/domain/halo_layout.h"

namespace tutti::test {

using parallel::domain::Box;
using parallel::domain::Dimension;
using parallel::domain::Edge;
using parallel::domain::HaloLayout;
using parallel::domain::HaloMessage;
using parallel::domain::HaloShape;
using parallel::domain::Range;
using parallel::domain::Stencil;

struct DomainShape {
  int ranks;
  HaloShape shape;
  std::string text() const { return fmt::format("{} on {} ranks", shape.name, ranks); }
};

inline std::vector<DomainShape> domain_shapes() {
  const Edge zero = Edge::zero, periodic = Edge::periodic;
  const Stencil three{.kernel = 3, .padding = 1}, pool{.kernel = 2, .stride = 2};
  const Stencil strided{.kernel = 3, .stride = 2, .padding = 1}, one{};
  const Stencil dilated{.kernel = 3, .dilation = 3, .padding = 3}, valid{.kernel = 4};
  const Stencil gaps{.kernel = 1, .stride = 3};
  return {
      {1, {"alone", {{"x", 9}}, {three}}},
      {1, {"alone, periodic", {{"y", 3, 1, periodic}, {"x", 4, 1, periodic}}, {three, three}}},
      {3, {"line", {{"x", 10, 3}}, {three}}},
      {3, {"ring", {{"x", 10, 3, periodic}}, {three}, 2, 3}},
      {2, {"ring of two", {{"x", 5, 2, periodic}}, {three}}},
      {4, {"uneven", {{"x", 13, 4, zero, {5, 1, 4, 3}}}, {three}, 2}},
      {4, {"without cells", {{"x", 6, 4, zero, {3, 0, 2, 1}}}, {three}}},
      {4, {"halo of several ranks", {{"x", 9, 4, zero}}, {dilated}}},
      {4, {"periodic, of several ranks", {{"x", 7, 4, periodic}}, {{.kernel = 7, .padding = 3}}}},
      {2, {"more than once around", {{"x", 4, 2, periodic}}, {{.kernel = 11, .padding = 5}}}},
      {4, {"strided", {{"x", 17, 4}}, {strided}}},
      {4, {"pooling of odd blocks", {{"x", 14, 4, zero, {3, 5, 3, 3}}}, {pool}}},
      {4, {"outputs for some", {{"x", 5, 4}}, {pool}}},
      {3, {"valid", {{"x", 11, 3}}, {valid}}},
      {3, {"gaps", {{"x", 11, 3}}, {gaps}}},
      {4, {"square", {{"y", 7, 2}, {"x", 9, 2}}, {three, three}, 3, 2}},
      {4, {"torus", {{"y", 6, 2, periodic}, {"x", 5, 2, periodic}}, {three, dilated}, 2}},
      {6, {"mixed", {{"y", 8, -1, periodic}, {"x", 11, 3}}, {strided, three}}},
      {6, {"cross", {{"y", 8, 2}, {"x", 9, 3, periodic}}, {three, three}, 1, 2, {}, false}},
      {4, {"one is whole", {{"y", 8, 4}, {"x", 6, 1, periodic}}, {three, three}}},
      {4, {"one has no halo", {{"y", 8, 2}, {"x", 6, 2}}, {three, one}}},
      {8, {"cube", {{"z", 5, 2}, {"y", 4, 2, periodic}, {"x", 6, 2}}, {three, three, three}, 2}},
      {8,
       {"uneven cube",
        {{"z", 5, 2, zero, {4, 1}}, {"y", 7, 2, periodic, {2, 5}}, {"x", 6, 2, zero, {3, 3}}},
        {strided, dilated, pool},
        1,
        2}},
      {6,
       {"cube of crosses",
        {{"z", 4}, {"y", 7, 3}, {"x", 5, 2}},
        {three, three, three},
        1,
        1,
        {},
        false}},
  };
}

/// Calls use(cell) for each cell of the box, the last dimension fastest.
template <class Use>
void each_cell(const Box& box, const Use& use) {
  if (cells(box) == 0) return;
  std::vector<std::int64_t> cell;
  for (const Range& r : box) cell.push_back(r.begin);
  while (true) {
    use(cell);
    std::size_t d = box.size();
    while (d-- > 0) {
      if (++cell[d] < box[d].end) break;
      cell[d] = box[d].begin;
    }
    if (d >= box.size()) return;
  }
}

inline bool contains(const Box& box, const std::vector<std::int64_t>& cell) {
  for (std::size_t d = 0; d < box.size(); ++d) {
    if (cell[d] < box[d].begin || cell[d] >= box[d].end) return false;
  }
  return true;
}

/// The number of a cell in the whole field, one from 0 on; -1: it is beyond an edge of zeros.
inline std::int64_t number_of(std::span<const Dimension> dimensions,
                              const std::vector<std::int64_t>& cell) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < cell.size(); ++d) {
    const std::int64_t n = dimensions[d].cells;
    std::int64_t at = cell[d];
    if (at < 0 || at >= n) {
      if (dimensions[d].edge == Edge::zero) return -1;
      at = (at % n + n) % n;
    }
    number = number * n + at;
  }
  return number;
}

/// Whether a cell differs from the box in one dimension at most: a halo without corners has it.
inline bool no_corner(const Box& box, const std::vector<std::int64_t>& cell) {
  int outside = 0;
  for (std::size_t d = 0; d < box.size(); ++d) {
    outside += cell[d] < box[d].begin || cell[d] >= box[d].end ? 1 : 0;
  }
  return outside <= 1;
}

}  // namespace tutti::test

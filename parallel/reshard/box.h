// Boxes of elements of a tensor: a range in each dimension.
//
// A plan has millions of them, so a box holds its ranges in itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace tutti::parallel::reshard {

/// The most dimensions of a tensor.
inline constexpr std::size_t kMostDimensions = 6;

/// Elements begin ... end - 1 of a dimension.
struct Range {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const Range&) const = default;
};

/// A range in each dimension. A number (a tensor without dimensions) is a box of none, which has
/// one element.
class Box {
 public:
  Box() = default;
  /// Throws Error(invalid_argument) for more than kMostDimensions.
  Box(std::initializer_list<Range> ranges) : Box(std::span(ranges.begin(), ranges.size())) {}
  explicit Box(std::span<const Range> ranges);
  /// All of a tensor of this shape.
  static Box whole(std::span<const std::uint64_t> shape);

  std::size_t dimensions() const { return dimensions_; }
  Range& operator[](std::size_t d) { return ranges_[d]; }
  const Range& operator[](std::size_t d) const { return ranges_[d]; }
  /// Of a box within a shape that Layout::check() accepts, it fits into the number.
  std::uint64_t elements() const;
  bool empty() const { return elements() == 0; }
  /// Whether the box has all elements of `inner`, which has as many dimensions.
  bool contains(const Box& inner) const;
  bool operator==(const Box& other) const;

 private:
  std::uint32_t dimensions_ = 0;
  std::array<Range, kMostDimensions> ranges_{};
};

/// The common elements of two boxes of one tensor; with none it is empty().
Box intersection(const Box& a, const Box& b);
/// Whether two boxes of one tensor have an element in common.
bool overlap(const Box& a, const Box& b);
/// `outer` without the elements of `inner`: boxes that have no element in common.
std::vector<Box> without(const Box& outer, const Box& inner);
/// "[0:4, 8:16]".
std::string text_of(const Box& box);

/// Distances in memory between neighbours in each dimension, in elements.
using Strides = std::array<std::uint64_t, kMostDimensions>;
/// The strides of a box that lies packed in memory, the last dimension innermost.
Strides packed_strides(const Box& box);

}  // namespace tutti::parallel::reshard

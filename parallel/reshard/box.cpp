#include "parallel/reshard/box.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace tutti::parallel::reshard {

Box::Box(std::span<const Range> ranges) : dimensions_(static_cast<std::uint32_t>(ranges.size())) {
  if (ranges.size() > kMostDimensions) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a box of {} dimensions: there may be {} at most", ranges.size(),
                            kMostDimensions));
  }
  std::ranges::copy(ranges, ranges_.begin());
}

Box Box::whole(std::span<const std::uint64_t> shape) {
  std::vector<Range> ranges;
  for (const std::uint64_t size : shape) ranges.push_back({0, size});
  return Box(ranges);
}

std::uint64_t Box::elements() const {
  std::uint64_t product = 1;
  for (std::size_t d = 0; d < dimensions_; ++d) product *= ranges_[d].size();
  return product;
}

bool Box::contains(const Box& inner) const {
  if (inner.empty()) return true;
  for (std::size_t d = 0; d < dimensions_; ++d) {
    if (inner[d].begin < ranges_[d].begin || inner[d].end > ranges_[d].end) return false;
  }
  return true;
}

bool Box::operator==(const Box& other) const {
  return dimensions_ == other.dimensions_ &&
         std::equal(ranges_.begin(), ranges_.begin() + dimensions_, other.ranges_.begin());
}

Box intersection(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t d = 0; d < a.dimensions(); ++d) {
    common[d] = {std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)};
  }
  return common;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.dimensions(); ++d) {
    if (std::max(a[d].begin, b[d].begin) >= std::min(a[d].end, b[d].end)) return false;
  }
  return true;
}

std::vector<Box> without(const Box& outer, const Box& inner) {
  if (!overlap(outer, inner)) return outer.empty() ? std::vector<Box>{} : std::vector<Box>{outer};
  std::vector<Box> rest;
  Box middle = outer;
  for (std::size_t d = 0; d < outer.dimensions(); ++d) {
    const Range cut{std::max(outer[d].begin, inner[d].begin), std::min(outer[d].end, inner[d].end)};
    for (const Range side : {Range{outer[d].begin, cut.begin}, Range{cut.end, outer[d].end}}) {
      if (side.size() == 0) continue;
      rest.push_back(middle);
      rest.back()[d] = side;
    }
    middle[d] = cut;
  }
  return rest;
}

std::string text_of(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", box[d].begin, box[d].end);
  }
  return text + "]";
}

Strides packed_strides(const Box& box) {
  Strides strides{};
  std::uint64_t distance = 1;
  for (std::size_t d = box.dimensions(); d-- > 0;) {
    strides[d] = distance;
    distance *= box[d].size();
  }
  return strides;
}

}  // namespace tutti::parallel::reshard

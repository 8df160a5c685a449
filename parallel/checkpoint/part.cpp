#include "parallel/checkpoint/part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/axis.h"

namespace tutti::parallel {

TensorPart TensorPart::whole(std::string name, DataType type, std::vector<std::size_t> shape,
                             void* data) {
  const std::size_t count = elements_of(shape);
  return {.name = std::move(name),
          .type = type,
          .shape = std::move(shape),
          .count = count,
          .data = data};
}

std::size_t elements_of(const std::vector<std::size_t>& shape) {
  double all = 1;
  std::size_t count = 1;
  for (const std::size_t n : shape) {
    all *= static_cast<double>(n);
    if (all > kMostElements) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("a tensor of {} elements is larger than there can be", text_of(shape)));
    }
    count *= n;
  }
  return count;
}

std::string text_of(const std::vector<std::size_t>& shape) {
  return shape.empty() ? "one number" : fmt::format("{}", fmt::join(shape, " x "));
}

void TensorPart::check() const {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, fmt::format("part of tensor '{}': {}", name, why));
  };
  if (name.empty()) refuse("a tensor needs a name");
  std::size_t most = elements_of(shape);
  if (offset.size() != extent.size() || (!offset.empty() && offset.size() != shape.size())) {
    refuse(fmt::format("the tensor has {} dimensions, the offset {}, the extent {}", shape.size(),
                       offset.size(), extent.size()));
  }
  for (std::size_t d = 0; d < offset.size(); ++d) {
    if (offset[d] > shape[d] || extent[d] > shape[d] - offset[d]) {
      refuse(fmt::format("{} from {} on are not among the {} of dimension {}", extent[d], offset[d],
                         shape[d], d));
    }
  }
  if (!extent.empty()) most = elements_of(extent);
  if (begin > most || count > most - begin) {
    refuse(fmt::format("{} elements from {} on are not among its {}", count, begin, most));
  }
  if (count > 0 && data == nullptr) refuse("it has no memory");
}

void TensorPart::for_each_run(const Run& run) const {
  if (count == 0) return;
  if (extent.empty()) return run(begin, 0, count);
  // The last dimensions that the box has whole are one with the dimension before them.
  std::size_t outer = shape.size();
  std::size_t row = 1;  // elements of the box that follow each other in the whole
  while (outer > 0) {
    --outer;
    row *= extent[outer];
    if (extent[outer] != shape[outer]) break;
  }
  std::size_t inner = 1;  // elements of the whole for a step along dimension `outer`
  for (std::size_t d = outer + 1; d < shape.size(); ++d) inner *= shape[d];
  std::size_t at = begin;
  const std::size_t end = begin + count;
  while (at < end) {
    // The place of the row, by its number among all rows.
    std::size_t number = at / row, whole = offset[outer] * inner;
    std::size_t stride = inner * shape[outer];
    for (std::size_t d = outer; d-- > 0;) {
      whole += (offset[d] + number % extent[d]) * stride;
      number /= extent[d];
      stride *= shape[d];
    }
    const std::size_t within = at % row, length = std::min(row - within, end - at);
    run(whole + within, at - begin, length);
    at += length;
  }
}

}  // namespace tutti::parallel

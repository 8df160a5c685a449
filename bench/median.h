// The median of a benchmark's times: single times are longer by whatever else the machine does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

/// Of an even number of values the mean of the two in the middle. `values` is not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace tutti

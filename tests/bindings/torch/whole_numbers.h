// Data with exact sums: small whole numbers, other ones for each seed and position.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace tutti::test {

inline at::Tensor whole_numbers(at::IntArrayRef sizes, int seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kFloat) * 7 + seed * 3) % 5 - 2).view(sizes);
}

}  // namespace tutti::test

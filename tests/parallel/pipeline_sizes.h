// What goes from a stage to the next in tests of the executor.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// Sizes of what goes from a stage to the next: none, small, odd, and more than a slot holds.
inline std::vector<std::size_t> sizes(const Schedule& s) {
  constexpr std::size_t kSizes[] = {4096, 1, 100'003, 0, 64, 333};
  std::vector<std::size_t> bytes;
  for (int b = 0; b + 1 < s.stages(); ++b) bytes.push_back(kSizes[static_cast<std::size_t>(b) % 6]);
  return bytes;
}

}  // namespace tutti::parallel::pipeline

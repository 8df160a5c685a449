// Runs combine() with each instruction set that it is compiled for and the machine has.
#pragma once

#include <cstdint>
#include <vector>

#include "core/supported_targets.h"
#include "core/types.h"
#include "hwy/targets.h"

namespace tutti {

// While one lives, combine() runs with this instruction set.
class CombineTarget {
 public:
  explicit CombineTarget(std::int64_t target) { detail::support_only(target); }
  ~CombineTarget() { detail::support_only(0); }
  CombineTarget(const CombineTarget&) = delete;
  CombineTarget& operator=(const CombineTarget&) = delete;

  // Those that combine() is compiled for and the machine has; the fallback is always there.
  static std::vector<std::int64_t> all() {
    std::vector<std::int64_t> targets;
    for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_NEON, HWY_STATIC_TARGET}) {
      if ((detail::supported_targets() & target) != 0 || target == HWY_STATIC_TARGET) {
        targets.push_back(target);
      }
    }
    return targets;
  }
};

inline std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypes; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

}  // namespace tutti

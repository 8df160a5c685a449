#include "core/supported_targets.h"

#include <atomic>

#include "core/highway-inl.h"
#include "hwy/targets.h"

namespace tutti::detail {
namespace {

std::atomic<std::int64_t> only{0};

std::int64_t find_targets() {
  std::int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  // GCC asks the system, too, whether it saves the registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v2") && __builtin_cpu_supports("aes") &&
      __builtin_cpu_supports("pclmul")) {
    targets |= HWY_SSSE3 | HWY_SSE4;
  }
  const bool v3 = __builtin_cpu_supports("x86-64-v3");
  const bool v4 = __builtin_cpu_supports("x86-64-v4");
  if (v3 && (targets & HWY_SSE4) != 0) targets |= HWY_AVX2;
  if (v4 && (targets & HWY_AVX2) != 0) targets |= HWY_AVX3;
  if ((targets & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("vaes") &&
      __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bitalg") &&
      __builtin_cpu_supports("gfni")) {
    targets |= HWY_AVX3_DL;
  }
#endif
  return targets;
}

}  // namespace

std::int64_t supported_targets() {
  static const std::int64_t all = find_targets();
  const std::int64_t wanted = only.load(std::memory_order_relaxed);
  return wanted != 0 ? wanted & all : all;
}

hwy::ChosenTarget& chosen_target() {
  static hwy::ChosenTarget chosen;
  return chosen;
}

void support_only(std::int64_t targets) {
  only.store(targets, std::memory_order_relaxed);
  chosen_target().Update(supported_targets());
}

}  // namespace tutti::detail

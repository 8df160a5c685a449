// A thread with another floating-point environment than the usual one: as after
// torch.set_flush_denormal(), in a program with a library of -ffast-math, after fesetround() or
// feenableexcept().
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti::test {

class ThreadFloatEnvironment {
 public:
  /// 0: the usual one. 1: subnormal numbers are zeros. 2: rounds towards zero, too. 3: an invalid
  /// operation is a signal.
  explicit ThreadFloatEnvironment(int which) {
    std::fegetenv(&before_);
    if (which % 4 == 2) std::fesetround(FE_TOWARDZERO);
    if (which % 4 == 1 || which % 4 == 2) flush_subnormals();
    if (which % 4 == 3) feenableexcept(FE_INVALID);
  }
  ~ThreadFloatEnvironment() { std::fesetenv(&before_); }
  ThreadFloatEnvironment(const ThreadFloatEnvironment&) = delete;
  ThreadFloatEnvironment& operator=(const ThreadFloatEnvironment&) = delete;

 private:
  static void flush_subnormals() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    std::uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | std::uint64_t{1} << 24));
#endif
  }

  std::fenv_t before_{};
};

}  // namespace tutti::test

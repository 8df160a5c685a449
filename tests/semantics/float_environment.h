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
  /// 0: the usual one. 1: subnormal numbers are zeros. 2: rounds towards zero, too. 3: what gives
  /// an infinity or a NaN is a signal.
  explicit ThreadFloatEnvironment(int which) {
    std::fegetenv(&before_);
    if (which % 4 == 2) std::fesetround(FE_TOWARDZERO);
    if (which % 4 == 3) feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
#if defined(__x86_64__)
    if (which % 4 == 1 || which % 4 == 2) _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    if (which % 4 == 1 || which % 4 == 2) {
      asm volatile("msr fpcr, %0" : : "r"(control() | std::uint64_t{1} << 24));
    }
#endif
    mine_ = control();
  }
  ~ThreadFloatEnvironment() { std::fesetenv(&before_); }
  ThreadFloatEnvironment(const ThreadFloatEnvironment&) = delete;
  ThreadFloatEnvironment& operator=(const ThreadFloatEnvironment&) = delete;

  /// Whether the thread still has it.
  bool is_there() const { return control() == mine_; }

 private:
  static std::uint64_t control() {
    std::uint64_t value = 0;
#if defined(__x86_64__)
    value = _mm_getcsr() & ~0x3FU;  // without the flags of what has happened
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(value));
#endif
    return value;
  }

  std::fenv_t before_{};
  std::uint64_t mine_ = 0;
};

}  // namespace tutti::test

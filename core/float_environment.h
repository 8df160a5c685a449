// The floating-point environment in which elements are reduced and converted: round to nearest
// even, keep subnormal numbers, and trap nothing. A thread of the program may have another one:
// torch.set_flush_denormal(), fesetround(), feenableexcept(), or a library that was linked with
// -ffast-math. A call runs on that thread, or on one of Tutti's, and ranks differ; the bits must
// not.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti {

/// While one lives, this thread has that environment. It costs a few cycles where the thread has it
/// anyway.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : before_(read()) {
    if (differs()) write(kDefault);
    keep_memory_accesses_inside();
  }
  ~DefaultFloatEnvironment() {
    keep_memory_accesses_inside();
    if (differs()) write(before_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  // The register that controls all vector arithmetic: on x86-64 with the flags of what has
  // happened, which are no matter here.
#if defined(__x86_64__)
  static constexpr std::uint64_t kDefault = 0x1F80, kFlags = 0x3F;
  static std::uint64_t read() { return _mm_getcsr(); }
  static void write(std::uint64_t value) { _mm_setcsr(static_cast<std::uint32_t>(value)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kDefault = 0, kFlags = 0;
  static std::uint64_t read() {
    std::uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static constexpr std::uint64_t kDefault = 0, kFlags = 0;
  static std::uint64_t read() { return 0; }
  static void write(std::uint64_t) {}
#endif

  bool differs() const { return (before_ & ~kFlags) != kDefault; }
  // The compiler knows nothing of what the register does to arithmetic between them.
  static void keep_memory_accesses_inside() { asm volatile("" : : : "memory"); }

  const std::uint64_t before_;
};

}  // namespace tutti

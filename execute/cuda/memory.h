// Memory accesses of the step logic: which are atomic, and in which order. On the device PTX, in
// the scope of the whole system (the other side may be another GPU, or the host); on the host
// std::atomic_ref, so that ThreadSanitizer checks the same protocol.
//
// Data is moved by plain (weak) accesses wherever a counter orders them. Plain loads never go
// through the read-only cache (no __ldg, no `const __restrict__`): other GPUs write while the
// kernel runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "execute/cuda/portable.h"

namespace tutti::device {

#if !TUTTI_ON_DEVICE
/// Ends the process where a device would fault.
inline void check_aligned(const void* p, std::size_t width) {
  if (reinterpret_cast<std::uintptr_t>(p) % width == 0) return;
  std::fprintf(stderr, "a device faults here: %zu bytes at %p\n", width, p);
  std::abort();
}
#endif

/// A reader that loads the value with acquire sees everything that the writer did before.
TUTTI_HD void store_release(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
#else
  std::atomic_ref(*p).store(value, std::memory_order_release);
#endif
}

TUTTI_HD std::uint64_t load_acquire(const std::uint64_t* p) {
#if TUTTI_ON_DEVICE
  std::uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
#else
  return std::atomic_ref(*const_cast<std::uint64_t*>(p)).load(std::memory_order_acquire);
#endif
}

/// One word that orders nothing but itself.
TUTTI_HD void store_relaxed(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
#else
  std::atomic_ref(*p).store(value, std::memory_order_relaxed);
#endif
}

TUTTI_HD std::uint64_t load_relaxed(const std::uint64_t* p) {
#if TUTTI_ON_DEVICE
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
#else
  return std::atomic_ref(*const_cast<std::uint64_t*>(p)).load(std::memory_order_relaxed);
#endif
}

/// The value before. Within one GPU (counters of a rank's own blocks): acq_rel, so that the last
/// block to arrive comes after what all others did.
TUTTI_HD std::uint64_t fetch_add(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  std::uint64_t before;
  asm volatile("atom.global.add.acq_rel.gpu.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(__cvta_generic_to_global(p)), "l"(value)
               : "memory");
  return before;
#else
  return std::atomic_ref(*p).fetch_add(value, std::memory_order_acq_rel);
#endif
}

/// The value before. It orders nothing but itself.
TUTTI_HD std::uint64_t fetch_add_relaxed(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  std::uint64_t before;
  asm volatile("atom.global.add.relaxed.gpu.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(__cvta_generic_to_global(p)), "l"(value)
               : "memory");
  return before;
#else
  return std::atomic_ref(*p).fetch_add(value, std::memory_order_relaxed);
#endif
}

/// Sets *p from 0 to `value`; false if another thread was first. Within one GPU. The thread that
/// sets it sees what was written before it was set back to 0 (store_release).
TUTTI_HD bool claim(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  std::uint64_t before;
  asm volatile("atom.global.cas.acquire.gpu.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(__cvta_generic_to_global(p)), "l"(std::uint64_t{0}), "l"(value)
               : "memory");
  return before == 0;
#else
  std::uint64_t expected = 0;
  return std::atomic_ref(*p).compare_exchange_strong(expected, value, std::memory_order_acquire);
#endif
}

/// Some clock that only goes forward.
TUTTI_HD std::uint64_t nanoseconds() {
#if TUTTI_ON_DEVICE
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Two words, 16-byte aligned, each relaxed and atomic on its own: a flag travels in each (LL), or
/// the hardware keeps more together (LL128).
struct alignas(16) Pair {
  std::uint64_t first = 0, second = 0;
};

TUTTI_HD void store_pair(std::uint64_t* p, Pair v) {
#if TUTTI_ON_DEVICE
  asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.first), "l"(v.second)
               : "memory");
#else
  check_aligned(p, sizeof v);
  store_relaxed(p, v.first);
  store_relaxed(p + 1, v.second);
#endif
}

TUTTI_HD Pair load_pair(const std::uint64_t* p) {
#if TUTTI_ON_DEVICE
  Pair v;
  asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.first), "=l"(v.second)
               : "l"(p)
               : "memory");
  return v;
#else
  check_aligned(p, sizeof(Pair));
  return {load_relaxed(p), load_relaxed(p + 1)};
#endif
}

// --- Plain accesses ------------------------------------------------------------------------------

/// One access of a thread. A device faults where the address is no multiple of the width, and every
/// later call with it; the host would read on, so it looks first.
template <class T>
TUTTI_HD T load(const std::byte* p) {
#if TUTTI_ON_DEVICE
  return *reinterpret_cast<const T*>(p);
#else
  check_aligned(p, sizeof(T));
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
#endif
}

template <class T>
TUTTI_HD void store(std::byte* p, T v) {
#if TUTTI_ON_DEVICE
  *reinterpret_cast<T*>(p) = v;
#else
  check_aligned(p, sizeof(T));
  std::memcpy(p, &v, sizeof v);
#endif
}

/// 16 bytes at a 16-byte boundary.
TUTTI_HD Pair load_16(const std::byte* p) {
#if TUTTI_ON_DEVICE
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  return {v.x, v.y};
#else
  return load<Pair>(p);
#endif
}

TUTTI_HD void store_16(std::byte* p, Pair v) {
#if TUTTI_ON_DEVICE
  *reinterpret_cast<ulonglong2*>(p) = make_ulonglong2(v.first, v.second);
#else
  store(p, v);
#endif
}

/// The number x, but the compiler does not know that it is x. So it computes the values that follow
/// from the number where they are used, and does not keep them in registers from before.
TUTTI_HD std::uint32_t here(std::uint32_t x) {
#if TUTTI_ON_DEVICE
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// The lowest bit that is set, of a number that is not 0.
TUTTI_HD int lowest_bit(std::uint32_t bits) {
#if TUTTI_ON_DEVICE
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

/// The largest of 1, 2, 4, 8, 16 that divides all numbers that `bits` is the OR of.
TUTTI_HD std::uint32_t unit_of(std::uint64_t bits) {
  const std::uint32_t low = static_cast<std::uint32_t>(bits) | 16;
  return low & (~low + 1);
}

/// The rest of a word, or a word at an odd address: `n` <= 8 bytes in accesses of less than 8, of
/// any address that `unit` divides, because a device cannot read across its alignment; zeros after
/// them.
TUTTI_HD std::uint64_t load_odd(const std::byte* p, std::uint32_t n, std::uint32_t unit) {
  const std::uint32_t u = unit_of(unit | n | 4);
  std::uint64_t word = 0;
  TUTTI_NO_UNROLL
  for (std::uint32_t at = 0; at < n; at += u) {
    const std::uint64_t part = u == 4   ? load<std::uint32_t>(p + at)
                               : u == 2 ? load<std::uint16_t>(p + at)
                                        : load<std::uint8_t>(p + at);
    word |= part << (8 * at);
  }
  return word;
}

TUTTI_HD void store_odd(std::byte* p, std::uint64_t word, std::uint32_t n, std::uint32_t unit) {
  const std::uint32_t u = unit_of(unit | n | 4);
  TUTTI_NO_UNROLL
  for (std::uint32_t at = 0; at < n; at += u) {
    const std::uint64_t part = word >> (8 * at);
    if (u == 4) {
      store(p + at, static_cast<std::uint32_t>(part));
    } else if (u == 2) {
      store(p + at, static_cast<std::uint16_t>(part));
    } else {
      store(p + at, static_cast<std::uint8_t>(part));
    }
  }
}

}  // namespace tutti::device

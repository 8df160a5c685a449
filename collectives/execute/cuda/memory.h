// Memory accesses of the step logic: which are atomic, and in which order. On the device PTX, in
// the scope of the whole system (the other side may be another GPU, or the host); on the host
// std::atomic_ref, so that ThreadSanitizer checks the same protocol.
//
// Data is moved by plain (weak) accesses wherever a counter orders them. Plain loads never go
// through the read-only cache (no __ldg, no `const __restrict__`): other GPUs write while the
// kernel runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/execute/cuda/portable.h"

namespace tutti::device {

/// Everything that the writer did before is visible to whoever reads the value with acquire.
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
  asm volatile("atom.add.acq_rel.gpu.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(p), "l"(value)
               : "memory");
  return before;
#else
  return std::atomic_ref(*p).fetch_add(value, std::memory_order_acq_rel);
#endif
}

/// Sets *p from 0 to `value`; false if somebody was first. Within one GPU.
TUTTI_HD bool claim(std::uint64_t* p, std::uint64_t value) {
#if TUTTI_ON_DEVICE
  std::uint64_t before;
  asm volatile("atom.cas.relaxed.gpu.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(p), "l"(std::uint64_t{0}), "l"(value)
               : "memory");
  return before == 0;
#else
  std::uint64_t expected = 0;
  return std::atomic_ref(*p).compare_exchange_strong(expected, value, std::memory_order_relaxed);
#endif
}

/// Two words, 16-byte aligned, each relaxed and atomic on its own: a flag travels in each (LL), or
/// the hardware keeps more together (LL128).
struct Pair {
  std::uint64_t first = 0, second = 0;
};

TUTTI_HD void store_pair(std::uint64_t* p, Pair v) {
#if TUTTI_ON_DEVICE
  asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.first), "l"(v.second)
               : "memory");
#else
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
  return {load_relaxed(p), load_relaxed(p + 1)};
#endif
}

// --- Plain accesses ------------------------------------------------------------------------------

/// 16 bytes at a 16-byte boundary.
TUTTI_HD Pair load_16(const std::byte* p) {
#if TUTTI_ON_DEVICE
  const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(p);
  return {v.x, v.y};
#else
  Pair v;
  std::memcpy(&v, p, sizeof v);
  return v;
#endif
}

TUTTI_HD void store_16(std::byte* p, Pair v) {
#if TUTTI_ON_DEVICE
  *reinterpret_cast<ulonglong2*>(p) = make_ulonglong2(v.first, v.second);
#else
  std::memcpy(p, &v, sizeof v);
#endif
}

/// `n` <= 8 bytes, in accesses of `unit` bytes (1, 2, 4 or 8), which divides n and the address: a
/// device cannot read across its alignment.
TUTTI_HD std::uint64_t load_units(const std::byte* p, std::uint32_t n, std::uint32_t unit) {
#if TUTTI_ON_DEVICE
  if (unit == 8) return n == 0 ? 0 : *reinterpret_cast<const std::uint64_t*>(p);
  std::uint64_t v = 0;
  for (std::uint32_t at = 0; at < n; at += unit) {
    const std::uint64_t part = unit == 4   ? *reinterpret_cast<const std::uint32_t*>(p + at)
                               : unit == 2 ? *reinterpret_cast<const std::uint16_t*>(p + at)
                                           : *reinterpret_cast<const std::uint8_t*>(p + at);
    v |= part << (8 * at);
  }
  return v;
#else
  std::uint64_t v = 0;
  (void)unit;
  std::memcpy(&v, p, n);
  return v;
#endif
}

TUTTI_HD void store_units(std::byte* p, std::uint64_t v, std::uint32_t n, std::uint32_t unit) {
#if TUTTI_ON_DEVICE
  if (unit == 8) {
    if (n != 0) *reinterpret_cast<std::uint64_t*>(p) = v;
    return;
  }
  for (std::uint32_t at = 0; at < n; at += unit) {
    const std::uint64_t part = v >> (8 * at);
    if (unit == 4) {
      *reinterpret_cast<std::uint32_t*>(p + at) = static_cast<std::uint32_t>(part);
    } else if (unit == 2) {
      *reinterpret_cast<std::uint16_t*>(p + at) = static_cast<std::uint16_t>(part);
    } else {
      *reinterpret_cast<std::uint8_t*>(p + at) = static_cast<std::uint8_t>(part);
    }
  }
#else
  (void)unit;
  std::memcpy(p, &v, n);
#endif
}

/// The largest of 1, 2, 4, 8, 16 that divides all numbers whose bits `bits` has.
TUTTI_HD std::uint32_t unit_of(std::uint64_t bits) {
  bits |= 16;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// A pack: `n` <= 16 bytes from any address whose alignment `unit` divides; zeros after them.
TUTTI_HD Pair load_pack(const std::byte* p, std::uint32_t n, std::uint32_t unit) {
  if (unit == 16 && n == 16) return load_16(p);
  const std::uint32_t u = unit_of(unit | n | 8);
  const std::uint32_t low = n < 8 ? n : 8;
  return {load_units(p, low, u), load_units(p + 8, n - low, u)};
}

TUTTI_HD void store_pack(std::byte* p, Pair v, std::uint32_t n, std::uint32_t unit) {
  if (unit == 16 && n == 16) return store_16(p, v);
  const std::uint32_t u = unit_of(unit | n | 8);
  const std::uint32_t low = n < 8 ? n : 8;
  store_units(p, v.first, low, u);
  store_units(p + 8, v.second, n - low, u);
}

}  // namespace tutti::device

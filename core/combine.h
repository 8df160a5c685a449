// combine(): the inner loop of every collective. Reads k sources, reduces them, writes m
// destinations. A copy is the case of one source; a broadcast is several destinations.
//
// combine() widens float16, bfloat16 and the 8-bit floats to float32, reduces them there, and
// rounds once, to nearest even, when it stores them. Integers wrap. It reduces sources in the given
// order (((s0 + s1) + s2) + ...), so equal order means equal bits. Vectorised with Highway, which
// picks the instruction set at run time. The calling thread's floating-point environment does not
// matter (float_environment.h).
//
// With CombineOptions::canonical, sums and products of floats have the canonical order of
// docs/determinism.md instead: a balanced tree over the sources.
//
// min and max, all types: a NaN in any source gives a NaN (float8_e4m3's one NaN pattern;
// elsewhere a quiet NaN, payload unspecified); -0 orders below +0. The result does not depend on
// the order of the sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.h"

namespace tutti {

/// How combine() scales a source's elements before it reduces them.
enum class Prescale : std::uint8_t {
  none,
  multiply,  // by `scalar` (one element's bits): pre_multiplied_sum. Floats up to 32 bits multiply
             // in float32 (the product is not rounded to the element type), integers wrap
  divide,    // by `divisor`: avg of floats, correctly rounded in float32 (float64 for float64)
};

struct Source {
  const void* data = nullptr;
  Prescale prescale = Prescale::none;
  std::uint64_t scalar = 0;  // multiply: the bits of one element
};

struct CombineOptions {
  std::uint32_t divisor = 1;   // number of ranks, for Prescale::divide and for divide_result
  bool divide_result = false;  // avg's last step: integers truncating; floats as Prescale::divide,
                               // before the result is rounded to the element type
  bool canonical = false;  // floats: n sources are the first 2^k of them plus the others, for the
                           // largest 2^k < n, and so on in both parts; and what
                           // Prescale::multiply gives is rounded to the element type
  std::size_t stream = 0;  // the first `stream` destinations are written past the
                           // cache (non-temporal stores)
  // combine_compressed(): what compressing leaves out of each element, so many times, is added
  // here. What is not finite leaves out nothing.
  float* left_out = nullptr;
  float left_out_times = 1;
};

/// destinations[i][0..count) = reduce(sources). `kind` avg and pre_multiplied_sum reduce as sum. No
/// source writes nothing. A destination may be one of the sources (same address exactly); otherwise
/// destinations overlap neither sources nor each other. Any alignment. Thread-safe. With `stream`,
/// a fence follows the stores, so that a release store orders them.
void combine(DataType type, ReduceKind kind, std::span<void* const> destinations,
             std::span<const Source> sources, std::size_t count,
             const CombineOptions& options = {});

namespace detail {
struct ReduceArguments;
}

/// combine() for one data type and one operator; the constructor looks them up once.
class Combiner {
 public:
  /// Throws Error(internal) for values outside the enumerations.
  Combiner(DataType type, ReduceKind kind);
  void operator()(std::span<void* const> destinations, std::span<const Source> sources,
                  std::size_t count, const CombineOptions& options = {}) const;

 private:
  void divide_result(const detail::ReduceArguments& arguments) const;

  DataType type_;
  ReduceKind kind_;
  void (*reduce_)(const detail::ReduceArguments&);
};

/// The instruction set that combine() runs with on this machine, e.g. "AVX3".
const char* combine_target();

}  // namespace tutti

// The vectorised loops of combine(), compiled once per instruction set by Highway's
// foreach_target.h, which includes this file again for each; the best one is chosen at run time.
// Here are the types that need no conversion; combine_floats16.cpp and combine_floats8.cpp have the
// others, so that the three compile side by side.
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/combine_kernels.cpp"
#include "hwy/foreach_target.h"
// The order matters: what follows is included once per target.
#include "core/combine_kernels.h"
#include "core/combine_loops-inl.h"
#include "core/combine_vectors-inl.h"
#include "core/supported_targets.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {

// Sums and products wrap alike for both signs.
template <class T>
ReduceFunction of_integer(Reduction reduction) {
  return of_type<Native<std::make_unsigned_t<T>>, Native<T>>(reduction);
}

ReduceFunction find_native_target(DataType type, Reduction reduction) {
  switch (type) {
    case DataType::int8:
      return of_integer<std::int8_t>(reduction);
    case DataType::uint8:
      return of_integer<std::uint8_t>(reduction);
    case DataType::int32:
      return of_integer<std::int32_t>(reduction);
    case DataType::uint32:
      return of_integer<std::uint32_t>(reduction);
    case DataType::int64:
      return of_integer<std::int64_t>(reduction);
    case DataType::uint64:
      return of_integer<std::uint64_t>(reduction);
    case DataType::float64:
      return of_type<Native<double>>(reduction);
    default:
      return of_type<Native<float>>(reduction);
  }
}

void stream_copy_target(std::span<void* const> destinations, std::size_t stream,
                        const std::uint8_t* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kVector = hn::MaxLanes(d);
  constexpr std::size_t kStep = 4 * kVector;
  const auto to = [&](std::size_t i)
                      HWY_ATTR { return static_cast<std::uint8_t*>(destinations[i]); };
  // Up to a cache line of the first destination, and what is left after the last step.
  const auto plain = [&](std::size_t at, std::size_t length) HWY_ATTR {
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      if (to(i) != source) std::memcpy(to(i) + at, source + at, length);
    }
  };
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(to(0)) % kCacheLine;
  std::size_t at = 0;
  if (misalignment != 0) {
    at = std::min(kCacheLine - misalignment, bytes);
    plain(0, at);
  }
  for (; at + kStep <= bytes; at += kStep) {
    const auto v0 = hn::LoadU(d, source + at);
    const auto v1 = hn::LoadU(d, source + at + kVector);
    const auto v2 = hn::LoadU(d, source + at + 2 * kVector);
    const auto v3 = hn::LoadU(d, source + at + 3 * kVector);
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      std::uint8_t* const out = to(i) + at;
      if (i < stream && reinterpret_cast<std::uintptr_t>(out) % kVector == 0) {
        hn::Stream(v0, d, out);
        hn::Stream(v1, d, out + kVector);
        hn::Stream(v2, d, out + 2 * kVector);
        hn::Stream(v3, d, out + 3 * kVector);
      } else {
        hn::StoreU(v0, d, out);
        hn::StoreU(v1, d, out + kVector);
        hn::StoreU(v2, d, out + 2 * kVector);
        hn::StoreU(v3, d, out + 3 * kVector);
      }
    }
  }
  if (at < bytes) plain(at, bytes - at);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti {
namespace detail {

HWY_EXPORT(find_native_target);
HWY_EXPORT(stream_copy_target);

ReduceFunction find_reduce(DataType type, Reduction reduction) {
  switch (type) {
    case DataType::float16:
    case DataType::bfloat16:
      return find_reduce_of_16_bits(type, reduction);
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return find_reduce_of_8_bits(type, reduction);
    default:
      return HWY_DYNAMIC_DISPATCH(find_native_target)(type, reduction);
  }
}

void stream_copy(std::span<void* const> destinations, std::size_t stream, const void* source,
                 std::size_t bytes) {
  if (destinations.size() == 1 && destinations[0] == source) return;
  HWY_DYNAMIC_DISPATCH(stream_copy_target)
  (destinations, stream, static_cast<const std::uint8_t*>(source), bytes);
}

void fence_streams() { hwy::FlushStream(); }

}  // namespace detail

const char* combine_target() {
  // The lowest bit is the best target.
  const std::int64_t usable = detail::supported_targets() & HWY_TARGETS;
  return hwy::TargetName(usable != 0 ? usable & -usable : HWY_STATIC_TARGET);
}

}  // namespace tutti
#endif

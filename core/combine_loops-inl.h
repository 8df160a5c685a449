// The loops of combine(), for core/combine_kernels.cpp: operators on vectors, and the walk over the
// elements for one data type and one operator.
//
// A walk has three parts: a head up to the first cache line boundary of the first destination (only
// when streaming: non-temporal stores must be aligned, and are fast only as whole lines in order),
// steps of several vectors, and the remaining vectors and partial vector. The same instructions
// compute a partial vector. It is loaded and stored under a mask, or through a buffer on the stack
// where a mask could touch memory beyond it.
//
// Every step loads all its sources before it stores, so a destination may be one of them.
//
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_CORE_COMBINE_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_CORE_COMBINE_LOOPS_INL_H_
#undef TUTTI_CORE_COMBINE_LOOPS_INL_H_
#else
#define TUTTI_CORE_COMBINE_LOOPS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/combine_kernels.h"
#include "core/combine_vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kCacheLine = 64;

// --- Operators
// ------------------------------------------------------------------------------------

// Integers wrap: their sums and products are of unsigned type, and Highway's multiplication wraps.
template <class V>
HWY_INLINE V multiply(V a, V b) {
  using D = hn::DFromV<V>;
  if constexpr (sizeof(hn::TFromV<V>) > 1) {
    return hn::Mul(a, b);
  } else {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(D(), static_cast<hn::TFromV<V>>(hn::GetLane(a) * hn::GetLane(b)));
#else
    // No instruction multiplies bytes: the even and the odd ones as the low bytes of 16-bit lanes.
    const hn::Repartition<std::uint16_t, D> wide;
    const auto a16 = hn::BitCast(wide, a);
    const auto b16 = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(wide, std::uint16_t{0xFF}));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(D(), hn::Or(even, odd));
#endif
  }
}

// A NaN on either side gives one and the same NaN, whatever the order.
template <class V>
HWY_INLINE V unless_nan(V a, V b, V result) {
  using D = hn::DFromV<V>;
  using Lane = hn::TFromD<D>;
  const auto nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
  return hn::IfThenElse(nan, hn::Set(D(), std::numeric_limits<Lane>::quiet_NaN()), result);
}

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return multiply(a, b);
  }
};

// Hardware returns either operand when they are equal; +0 and -0 are equal. Both orders together,
// with OR (AND), keep (drop) the sign.
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      return unless_nan(a, b, hn::Or(hn::Min(a, b), hn::Min(b, a)));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      return unless_nan(a, b, hn::And(hn::Max(a, b), hn::Max(b, a)));
    } else {
      return hn::Max(a, b);
    }
  }
};

// --- Loops
// ----------------------------------------------------------------------------------------

template <class Type, class Operator>
class Reducer {
 public:
  explicit Reducer(const ReduceArguments& arguments) : arguments_(arguments) {}

  void run() const {
    std::size_t at = arguments_.begin * sizeof(Element);
    const std::size_t end = arguments_.end * sizeof(Element);
    const auto first = reinterpret_cast<std::uintptr_t>(destination(0) + at);
    if (end - at < kVectorBytes) return partial(at, end - at);
    const bool stream = arguments_.stream > 0 && first % sizeof(Element) == 0;
    if (stream && first % kCacheLine != 0) {
      const std::size_t head = std::min(kCacheLine - first % kCacheLine, end - at);
      vectors(at, at + head);
      at += head;
    }
    const std::size_t steps_end = at + (end - at) / kStepBytes * kStepBytes;
    if (is_pair()) {
      stream ? pair<true>(at, steps_end) : pair<false>(at, steps_end);
    } else {
      for (; at < steps_end; at += kStepBytes) step<kUnroll>(at, stream);
    }
    vectors(steps_end, end);
  }

 private:
  using Element = typename Type::Element;
  using Tag = typename Type::Tag;
  using Unpacked = typename Type::Unpacked;
  static constexpr std::size_t kVectorBytes = hn::MaxLanes(Tag()) * sizeof(Element);
  // Enough independent work to hide latencies, within the available registers.
  static constexpr int kUnroll = 4 / Type::kParts;
  static constexpr std::size_t kStepBytes = kUnroll * kVectorBytes;

  std::uint8_t* destination(std::size_t i) const {
    return static_cast<std::uint8_t*>(arguments_.destinations[i]);
  }
  const std::uint8_t* source(std::size_t i) const {
    return static_cast<const std::uint8_t*>(arguments_.sources[i].data);
  }

  static HWY_INLINE Unpacked load(const std::uint8_t* from) {
    return Type::unpack(hn::LoadU(Tag(), reinterpret_cast<const Element*>(from)));
  }
  static HWY_INLINE void store(const Unpacked& value, std::uint8_t* to) {
    hn::StoreU(Type::pack(value), Tag(), reinterpret_cast<Element*>(to));
  }
  static HWY_INLINE void stream_store(const Unpacked& value, std::uint8_t* to) {
    hn::Stream(Type::pack(value), Tag(), reinterpret_cast<Element*>(to));
  }

  static HWY_INLINE void accumulate(Unpacked& sum, const Unpacked& value) {
#pragma GCC unroll 4
    for (int j = 0; j < Type::kParts; ++j) {
      sum.part[j] = Operator::apply(sum.part[j], value.part[j]);
    }
  }

  // The commonest case: two sources without scaling, one destination.
  bool is_pair() const {
    return arguments_.sources.size() == 2 && arguments_.destinations.size() == 1 &&
           arguments_.sources[0].prescale == Prescale::none &&
           arguments_.sources[1].prescale == Prescale::none;
  }

  template <bool stream>
  HWY_INLINE void pair(std::size_t at, std::size_t end) const {
    const std::uint8_t* const a = source(0);
    const std::uint8_t* const b = source(1);
    std::uint8_t* const to = destination(0);
    for (; at < end; at += kStepBytes) {
      Unpacked sums[kUnroll];
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        sums[u] = load(a + at + u * kVectorBytes);
        accumulate(sums[u], load(b + at + u * kVectorBytes));
      }
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        if constexpr (stream) {
          stream_store(sums[u], to + at + u * kVectorBytes);
        } else {
          store(sums[u], to + at + u * kVectorBytes);
        }
      }
    }
  }

  // Any number of sources and destinations, for n vectors at byte `at`.
  template <int n>
  HWY_INLINE void step(std::size_t at, bool stream) const {
    Unpacked sums[n];
#pragma GCC unroll 4
    for (int u = 0; u < n; ++u) sums[u] = load(source(0) + at + u * kVectorBytes);
    scale<n>(sums, arguments_.sources[0]);
    for (std::size_t s = 1; s < arguments_.sources.size(); ++s) {
      Unpacked values[n];
#pragma GCC unroll 4
      for (int u = 0; u < n; ++u) values[u] = load(source(s) + at + u * kVectorBytes);
      scale<n>(values, arguments_.sources[s]);
#pragma GCC unroll 4
      for (int u = 0; u < n; ++u) accumulate(sums[u], values[u]);
    }
    for (std::size_t d = 0; d < arguments_.destinations.size(); ++d) {
      std::uint8_t* const to = destination(d) + at;
      // The head aligned the first destination; the others may happen to be aligned with it.
      const bool past_the_cache = stream && d < arguments_.stream &&
                                  reinterpret_cast<std::uintptr_t>(to) % kVectorBytes == 0;
#pragma GCC unroll 4
      for (int u = 0; u < n; ++u) {
        if (past_the_cache) {
          stream_store(sums[u], to + u * kVectorBytes);
        } else {
          store(sums[u], to + u * kVectorBytes);
        }
      }
    }
  }

  // Whole vectors, then the partial one.
  HWY_NOINLINE void vectors(std::size_t at, std::size_t end) const {
    for (; at + kVectorBytes <= end; at += kVectorBytes) step<1>(at, false);
    if (at < end) partial(at, end - at);
  }

  HWY_INLINE void partial(std::size_t at, std::size_t bytes) const {
    Unpacked sums[1] = {load_partial(source(0) + at, bytes)};
    if (is_pair()) {
      accumulate(sums[0], load_partial(source(1) + at, bytes));
      return store_partial(sums[0], destination(0) + at, bytes);
    }
    scale<1>(sums, arguments_.sources[0]);
    for (std::size_t s = 1; s < arguments_.sources.size(); ++s) {
      Unpacked values[1] = {load_partial(source(s) + at, bytes)};
      scale<1>(values, arguments_.sources[s]);
      accumulate(sums[0], values[0]);
    }
    for (std::size_t d = 0; d < arguments_.destinations.size(); ++d) {
      store_partial(sums[0], destination(d) + at, bytes);
    }
  }

  static HWY_INLINE Unpacked load_partial(const std::uint8_t* from, std::size_t bytes) {
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(kVectorBytes) std::uint8_t buffer[kVectorBytes] = {};
    std::memcpy(buffer, from, bytes);
    return load(buffer);
#else
    const auto* elements = reinterpret_cast<const Element*>(from);
    return Type::unpack(hn::MaskedLoad(first(bytes), Tag(), elements));
#endif
  }
  static HWY_INLINE void store_partial(const Unpacked& value, std::uint8_t* to, std::size_t bytes) {
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(kVectorBytes) std::uint8_t buffer[kVectorBytes];
    store(value, buffer);
    std::memcpy(to, buffer, bytes);
#else
    hn::BlendedStore(Type::pack(value), first(bytes), Tag(), reinterpret_cast<Element*>(to));
#endif
  }
#if !HWY_MEM_OPS_MIGHT_FAULT
  static HWY_INLINE auto first(std::size_t bytes) {
    return hn::FirstN(Tag(), bytes / sizeof(Element));
  }
#endif

  template <int n>
  HWY_INLINE void scale(Unpacked* values, const Source& source) const {
    if (HWY_LIKELY(source.prescale == Prescale::none)) return;
    using V = std::remove_reference_t<decltype(values->part[0])>;
    using Lane = hn::TFromV<V>;
    if (source.prescale == Prescale::multiply) {
      Element bits;
      std::memcpy(&bits, &source.scalar, sizeof(bits));  // the low bytes come first
      const Unpacked factor = Type::unpack(hn::Set(Tag(), bits));
      for (int u = 0; u < n; ++u) {
#pragma GCC unroll 4
        for (int j = 0; j < Type::kParts; ++j) {
          values[u].part[j] = multiply(values[u].part[j], factor.part[0]);
        }
      }
    } else if constexpr (std::is_floating_point_v<Lane>) {
      const V divisor = hn::Set(hn::DFromV<V>(), static_cast<Lane>(arguments_.divisor));
      for (int u = 0; u < n; ++u) {
#pragma GCC unroll 4
        for (int j = 0; j < Type::kParts; ++j) {
          values[u].part[j] = hn::Div(values[u].part[j], divisor);
        }
      }
    }
  }

  const ReduceArguments& arguments_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

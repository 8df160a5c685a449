// The loops of combine(), for core/combine_kernels.cpp and its neighbours: operators on vectors,
// and the walk over the elements for one data type and one operator.
//
// A walk has three parts: a head up to the first cache line boundary of the first destination (only
// when streaming: non-temporal stores must be aligned, and are fast only as whole lines in order),
// steps of several vectors, and what remains, a vector at a time. The last vector may be a partial
// one. It is loaded and stored under a mask, or through a buffer on the stack where a mask could
// touch memory beyond it.
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
  static constexpr bool kOrderMatters = true;  // of floats
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

struct Prod {
  static constexpr bool kOrderMatters = true;
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return multiply(a, b);
  }
};

// Hardware returns either operand when they are equal; +0 and -0 are equal. Both orders together,
// with OR (AND), keep (drop) the sign.
struct Min {
  static constexpr bool kOrderMatters = false;
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
  static constexpr bool kOrderMatters = false;
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
    if (end - at <= kVectorBytes) return vectors(at, end);
    const bool stream = arguments_.stream > 0 && first % sizeof(Element) == 0;
    if (stream && first % kCacheLine != 0) {
      const std::size_t head = std::min(kCacheLine - first % kCacheLine, end - at);
      vectors(at, at + head);
      at += head;
    }
    const std::size_t steps_end = at + (end - at) / kStepBytes * kStepBytes;
    const std::size_t destinations = arguments_.destinations.size();
    if (kHasPair && is_pair() && destinations <= 2 && !stream) {
      destinations == 1 ? pair<1>(at, steps_end) : pair<2>(at, steps_end);
    } else if (is_plain()) {
      for (; at < steps_end; at += kStepBytes) step<true>(at, stream);
    } else if constexpr (Operator::kOrderMatters) {
      for (; at < steps_end; at += kStepBytes) step<false>(at, stream);
    } else {  // no collective scales what it compares
      return vectors(at, end);
    }
    vectors(steps_end, end);
  }

 private:
  using Element = typename Type::Element;
  using Tag = typename Type::Tag;
  using Unpacked = typename Type::Unpacked;
  using Vector = std::remove_reference_t<decltype(Unpacked::part[0])>;
  static constexpr bool kFloats = std::is_floating_point_v<hn::TFromV<Vector>>;
  static constexpr std::size_t kVectorBytes = hn::MaxLanes(Tag()) * sizeof(Element);
  // Enough independent work to hide latencies, within the available registers. No machine of
  // interest runs the scalar loops.
  static constexpr int kUnroll = HWY_TARGET == HWY_SCALAR ? 1 : 4 / Type::kParts;
  // A loop of its own for the commonest cases, in the cache; 8-bit floats spend their time in
  // conversions.
  static constexpr bool kHasPair = HWY_TARGET != HWY_SCALAR && Type::kParts < 4;
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

  // Whether the sources are added as they are, one after the other: the checks for anything else
  // would cost a fifth of the time of data in the first-level cache.
  bool is_plain() const {
    const auto scaled = [](const Source& s) { return s.prescale != Prescale::none; };
    return !arguments_.divide_result && !is_tree() &&
           std::ranges::none_of(arguments_.sources, scaled);
  }
  // Up to three sources have the same order either way.
  bool is_tree() const {
    return kFloats && Operator::kOrderMatters && arguments_.canonical &&
           arguments_.sources.size() > 3;
  }

  // The commonest of these.
  bool is_pair() const {
    return arguments_.sources.size() == 2 && !arguments_.divide_result &&
           arguments_.sources[0].prescale == Prescale::none &&
           arguments_.sources[1].prescale == Prescale::none;
  }

  template <int destinations>
  HWY_INLINE void pair(std::size_t at, std::size_t end) const {
    const std::uint8_t* const a = source(0);
    const std::uint8_t* const b = source(1);
    std::uint8_t* const to[] = {destination(0), destination(destinations - 1)};
    for (; at < end; at += kStepBytes) {
      Unpacked sums[kUnroll];
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        sums[u] = load(a + at + u * kVectorBytes);
        accumulate(sums[u], load(b + at + u * kVectorBytes));
      }
#pragma GCC unroll 2
      for (int d = 0; d < destinations; ++d) {
#pragma GCC unroll 4
        for (int u = 0; u < kUnroll; ++u) store(sums[u], to[d] + at + u * kVectorBytes);
      }
    }
  }

  // Any number of sources and destinations, for a step at byte `at`. `plain`: see is_plain().
  template <bool plain>
  HWY_INLINE void step(std::size_t at, bool stream) const {
    Unpacked sums[kUnroll];
    reduce<kUnroll, plain>(sums, Whole{at});
    for (std::size_t d = 0; d < arguments_.destinations.size(); ++d) {
      std::uint8_t* const to = destination(d) + at;
      // The head aligned the first destination; the others may happen to be aligned with it.
      const bool past_the_cache = stream && d < arguments_.stream &&
                                  reinterpret_cast<std::uintptr_t>(to) % kVectorBytes == 0;
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        if (past_the_cache) {
          stream_store(sums[u], to + u * kVectorBytes);
        } else {
          store(sums[u], to + u * kVectorBytes);
        }
      }
    }
  }

  // How n vectors of a source are loaded: whole ones from byte `at` on, or a part of one.
  struct Whole {
    std::size_t at;
    HWY_INLINE Unpacked of(const std::uint8_t* source, int u) const {
      return load(source + at + u * kVectorBytes);
    }
  };
  struct Partial {
    std::size_t at, bytes;
    HWY_INLINE Unpacked of(const std::uint8_t* source, int) const {
      return load_partial(source + at, bytes);
    }
  };

  template <int n, bool plain, class Place>
  HWY_INLINE void read(Unpacked* values, std::size_t s, const Place& place) const {
#pragma GCC unroll 4
    for (int u = 0; u < n; ++u) values[u] = place.of(source(s), u);
    if (plain || HWY_LIKELY(arguments_.sources[s].prescale == Prescale::none)) return;
    // A copy: scale() takes an address, so `values` itself would always lie in memory.
    Unpacked scaled[n];
    copy<n>(scaled, values);
    scale<n>(scaled, arguments_.sources[s]);
    copy<n>(values, scaled);
  }
  template <int n>
  static HWY_INLINE void add(Unpacked* sums, const Unpacked* values) {
#pragma GCC unroll 4
    for (int u = 0; u < n; ++u) accumulate(sums[u], values[u]);
  }

  template <int n, bool plain, class Place>
  HWY_INLINE void reduce(Unpacked* sums, const Place& place) const {
    if constexpr (!plain && kFloats && Operator::kOrderMatters) {
      if (is_tree()) {
        reduce_tree<n>(sums, place);
        if (arguments_.divide_result) divide<n>(sums);
        return;
      }
    }
    read<n, plain>(sums, 0, place);
    for (std::size_t s = 1; s < arguments_.sources.size(); ++s) {
      Unpacked values[n];
      read<n, plain>(values, s, place);
      add<n>(sums, values);
    }
    if (!plain && arguments_.divide_result) divide<n>(sums);
  }

  // The tree over `count` sources, at most kMost of them, from source `first` on.
  template <int n, std::size_t kMost, class Place>
  HWY_INLINE void tree(Unpacked* sums, std::size_t first, std::size_t count,
                       const Place& place) const {
    if constexpr (kMost == 1) {
      read<n, false>(sums, first, place);
    } else {
      constexpr std::size_t kHalf = kMost / 2;
      tree<n, kHalf>(sums, first, std::min(count, kHalf), place);
      if (count <= kHalf) return;
      Unpacked right[n];
      tree<n, kHalf>(right, first + kHalf, count - kHalf, place);
      add<n>(sums, right);
    }
  }

  // How many sources a tree in registers takes. The code is kept small where more would not be
  // faster: a partial step has few bytes, and 8-bit floats spend the time in conversions.
  template <int n>
  static constexpr std::size_t kInRegisters = (n < kUnroll || Type::kParts == 4) ? 1 : 8;

  template <int n, class Place>
  HWY_INLINE void reduce_tree(Unpacked* sums, const Place& place) const {
    if constexpr (Type::kParts == 1) {  // without conversions a call would be noticed
      if (arguments_.sources.size() <= kInRegisters<n>) {
        return tree<n, kInRegisters<n>>(sums, 0, arguments_.sources.size(), place);
      }
    }
    Unpacked of_trees[n];  // as in read()
    reduce_trees<n>(of_trees, place);
    copy<n>(sums, of_trees);
  }

  // Trees in registers; and a tree over these, as a binary counter makes it: level l holds the sum
  // of 2^l of them.
  template <int n, class Place>
  HWY_NOINLINE void reduce_trees(Unpacked* sums, const Place& place) const {
    constexpr int kLevels = 20;
    constexpr std::size_t kMost = kInRegisters<n>;
    const std::size_t sources = arguments_.sources.size();
    Unpacked held[kLevels][n];
    std::size_t trees = 0;
    for (std::size_t first = 0; first < sources; first += kMost, ++trees) {
      Unpacked right[n];
      tree<n, kMost>(right, first, std::min(sources - first, kMost), place);
      if (sources <= kMost) return copy<n>(sums, right);
      int level = 0;
      for (std::size_t counter = trees; counter % 2 == 1; counter /= 2, ++level) {
        add<n>(held[level], right);
        copy<n>(right, held[level]);
      }
      copy<n>(held[level], right);
    }
    int level = 0;
    while (trees % 2 == 0) trees /= 2, ++level;
    copy<n>(sums, held[level]);
    while (trees /= 2, ++level, trees > 0) {
      if (trees % 2 == 0) continue;
      add<n>(held[level], sums);
      copy<n>(sums, held[level]);
    }
  }
  template <int n>
  static HWY_INLINE void copy(Unpacked* to, const Unpacked* from) {
#pragma GCC unroll 4
    for (int u = 0; u < n; ++u) to[u] = from[u];
  }

  // What is not a whole step: a vector at a time, the last one may be a part of one.
  HWY_NOINLINE void vectors(std::size_t at, std::size_t end) const {
    for (; at < end; at += kVectorBytes) vector(at, std::min(end - at, kVectorBytes));
  }

  HWY_INLINE void vector(std::size_t at, std::size_t bytes) const {
    Unpacked sums[1];
    if (kHasPair && is_pair()) {
      sums[0] = load_partial(source(0) + at, bytes);
      accumulate(sums[0], load_partial(source(1) + at, bytes));
    } else {
      reduce<1, false>(sums, Partial{at, bytes});
    }
    for (std::size_t d = 0; d < arguments_.destinations.size(); ++d) {
      store_partial(sums[0], destination(d) + at, bytes);
    }
  }

  static HWY_INLINE Unpacked load_partial(const std::uint8_t* from, std::size_t bytes) {
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(kVectorBytes) std::uint8_t buffer[kVectorBytes] = {};
    const bool whole = bytes == kVectorBytes;
    if (!whole) std::memcpy(buffer, from, bytes);
    return load(whole ? from : buffer);
#else
    const auto* elements = reinterpret_cast<const Element*>(from);
    return Type::unpack(hn::MaskedLoad(first(bytes), Tag(), elements));
#endif
  }
  static HWY_INLINE void store_partial(const Unpacked& value, std::uint8_t* to, std::size_t bytes) {
#if HWY_MEM_OPS_MIGHT_FAULT
    alignas(kVectorBytes) std::uint8_t buffer[kVectorBytes];
    const bool whole = bytes == kVectorBytes;
    store(value, whole ? to : buffer);
    if (!whole) std::memcpy(to, buffer, bytes);
#else
    hn::BlendedStore(Type::pack(value), first(bytes), Tag(), reinterpret_cast<Element*>(to));
#endif
  }
#if !HWY_MEM_OPS_MIGHT_FAULT
  static HWY_INLINE auto first(std::size_t bytes) {
    return hn::FirstN(Tag(), bytes / sizeof(Element));
  }
#endif

  // Not inline: trees read many sources.
  template <int n>
  HWY_NOINLINE void scale(Unpacked* values, const Source& source) const {
    using Lane = hn::TFromV<Vector>;
    if (source.prescale == Prescale::multiply) {
      Element bits;
      std::memcpy(&bits, &source.scalar, sizeof(bits));  // the low bytes come first
      const Unpacked factor = Type::unpack(hn::Set(Tag(), bits));
      for (int u = 0; u < n; ++u) {
#pragma GCC unroll 4
        for (int j = 0; j < Type::kParts; ++j) {
          values[u].part[j] = multiply(values[u].part[j], factor.part[0]);
        }
        if constexpr (sizeof(Element) != sizeof(Lane)) {
          if (arguments_.canonical) values[u] = Type::unpack(Type::pack(values[u]));
        }
      }
    } else {
      divide<n>(values);
    }
  }

  template <int n>
  HWY_INLINE void divide(Unpacked* values) const {
    if constexpr (kFloats) {
      using Lane = hn::TFromV<Vector>;
      const Vector divisor = hn::Set(hn::DFromV<Vector>(), static_cast<Lane>(arguments_.divisor));
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

template <class Type, class Operator>
void reduce_with(const ReduceArguments& arguments) {
  Reducer<Type, Operator>(arguments).run();
}

// `Ordered`: the type for min and max.
template <class Type, class Ordered = Type>
ReduceFunction of_type(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_with<Type, Sum>;
    case Reduction::prod:
      return reduce_with<Type, Prod>;
    case Reduction::min:
      return reduce_with<Ordered, Min>;
    case Reduction::max:
      break;
  }
  return reduce_with<Ordered, Max>;
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

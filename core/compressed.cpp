// Compiled once per instruction set, as combine_kernels.cpp is. A block at a time: its elements are
// summed in float32 on the stack, and go from there to all destinations.
#include "core/compressed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/compressed.cpp"
#include "hwy/foreach_target.h"
// The order matters: what follows is included once per target.
#include "core/combine_vectors-inl.h"
#include "hwy/highway.h"

#ifndef TUTTI_CORE_COMPRESSED_ARGUMENTS_
#define TUTTI_CORE_COMPRESSED_ARGUMENTS_
namespace tutti::detail {
/// As combine_compressed() has them.
struct CompressedArguments {
  DataType type;
  std::span<void* const> destinations;
  std::size_t compressed_destinations;
  std::span<const Source> sources;
  std::span<const unsigned char> compressed_sources;
  std::size_t count;
  const CombineOptions& options;
};
}  // namespace tutti::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {

using Bytes = hn::Rebind<std::int8_t, Floats>;
constexpr std::int8_t kNotFinite = -128;  // an element's byte

// float32 as the other types' codes are.
struct Float32Code {
  using Element = std::uint32_t;
  static HWY_INLINE FloatVector decode(WordVector code) { return hn::BitCast(Floats(), code); }
  static HWY_INLINE WordVector encode(FloatVector value) { return hn::BitCast(Words(), value); }
};

// For whole blocks and, with kWhole false, for a short one: its missing elements count as 0.
template <class Code, bool kWhole>
class Block {
 public:
  using Element = typename Code::Element;
  static constexpr std::size_t kSize = 64 / sizeof(Element);  // elements

  explicit Block(std::size_t present) : present_(kWhole ? kSize : present) {}

  /// The block at element `at`, and at byte `packed_at` of what is compressed.
  void combine(const CompressedArguments& a, std::size_t at, std::size_t packed_at) const {
    HWY_ALIGN float sum[kSize], sent[kSize];
    std::uint8_t packed[1 + kSize];
    const bool compresses = a.compressed_destinations > 0;
    const bool passes_on = compresses && a.sources.size() == 1 && a.compressed_sources[0] != 0 &&
                           !a.options.divide_result;
    if (passes_on) {
      std::memcpy(packed, bytes(a.sources[0].data) + packed_at, packed_size());
    } else {
      add_up(a, at, packed_at, sum);
      if (compresses) pack(sum, packed);
      if (compresses && a.options.left_out != nullptr) {
        unpack<false>(packed, sent);
        note_left_out(a.options, at, sum, sent);
      }
    }
    for (std::size_t d = 0; d < a.compressed_destinations; ++d) {
      std::memcpy(static_cast<std::uint8_t*>(a.destinations[d]) + packed_at, packed, packed_size());
    }
    if (a.compressed_destinations == a.destinations.size()) return;
    if (compresses) unpack<false>(packed, sum);
    for (const auto to : a.destinations.subspan(a.compressed_destinations)) {
      write(sum, static_cast<std::uint8_t*>(to) + at * sizeof(Element));
    }
  }

 private:
  static const std::uint8_t* bytes(const void* data) {
    return static_cast<const std::uint8_t*>(data);
  }
  std::size_t present() const { return kWhole ? kSize : present_; }
  std::size_t packed_size() const { return present() + 1; }

  void add_up(const CompressedArguments& a, std::size_t at, std::size_t packed_at,
              float* sum) const {
    const Floats d;
    HWY_ALIGN float next[kSize];
    for (std::size_t k = 0; k < a.sources.size(); ++k) {
      const bool is_first = k == 0;
      if (a.compressed_sources[k] != 0) {
        const std::uint8_t* const from = bytes(a.sources[k].data) + packed_at;
        is_first ? unpack<false>(from, sum) : unpack<true>(from, sum);
        continue;
      }
      read(a, a.sources[k], at, is_first ? sum : next);
      for (std::size_t i = 0; !is_first && i < kSize; i += hn::Lanes(d)) {
        hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, next + i)), d, sum + i);
      }
    }
    if (a.options.divide_result) divide(a, sum);
  }

  static void divide(const CompressedArguments& a, float* values) {
    const Floats d;
    const auto divisor = hn::Set(d, static_cast<float>(a.options.divisor));
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      hn::Store(hn::Div(hn::Load(d, values + i), divisor), d, values + i);
    }
  }

  /// Of `sum`, where the others get `sent`, rounded to the type.
  void note_left_out(const CombineOptions& options, std::size_t at, const float* sum,
                     float* sent) const {
    const Floats d;
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      hn::Store(Code::decode(Code::encode(hn::Load(d, sent + i))), d, sent + i);
    }
    float* const left_out = options.left_out + at;
    for (std::size_t i = 0; i < present(); ++i) {
      const float error = (sum[i] - sent[i]) * options.left_out_times;
      if (std::isfinite(error)) left_out[i] += error;
    }
  }

  void read(const CompressedArguments& a, const Source& source, std::size_t at, float* to) const {
    const Floats d;
    const hn::Rebind<Element, Floats> narrow;
    const auto* elements = static_cast<const Element*>(source.data) + at;
    HWY_ALIGN Element short_block[kWhole ? 1 : kSize] = {};
    if constexpr (!kWhole) {
      std::memcpy(short_block, elements, present() * sizeof(Element));
      elements = short_block;
    }
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      hn::Store(Code::decode(widened(hn::LoadU(narrow, elements + i))), d, to + i);
    }
    if (source.prescale == Prescale::divide) divide(a, to);
    if (source.prescale != Prescale::multiply) return;
    Element bits;
    std::memcpy(&bits, &source.scalar, sizeof bits);  // the low bytes come first
    const auto factor = Code::decode(hn::Set(Words(), std::uint32_t{bits}));
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, to + i), factor), d, to + i);
    }
  }

  void write(const float* from, std::uint8_t* to) const {
    const Floats d;
    const hn::Rebind<Element, Floats> narrow;
    HWY_ALIGN Element short_block[kWhole ? 1 : kSize];
    Element* elements = kWhole ? reinterpret_cast<Element*>(to) : short_block;
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      hn::StoreU(narrowed(narrow, Code::encode(hn::Load(d, from + i))), narrow, elements + i);
    }
    if constexpr (!kWhole) std::memcpy(to, short_block, present() * sizeof(Element));
  }

  template <class V>
  static HWY_INLINE WordVector widened(V codes) {
    if constexpr (sizeof(Element) == 4) {
      return codes;
    } else {
      return hn::PromoteTo(Words(), codes);
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrowed(D d, WordVector codes) {
    if constexpr (sizeof(Element) == 4) {
      (void)d;
      return codes;
    } else {
      return hn::TruncateTo(d, codes);
    }
  }

  void pack(const float* from, std::uint8_t* to) const {
    const Floats d;
    const Signed integers;
    const Bytes narrow;
    const auto largest = hn::Set(d, std::numeric_limits<float>::max());
    auto most = hn::Zero(d);
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      const auto magnitude = hn::Abs(hn::Load(d, from + i));
      most = hn::Max(most, hn::IfThenElseZero(hn::Le(magnitude, largest), magnitude));
    }
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, most));
    std::uint32_t exponent;
    std::memcpy(&exponent, &maximum, sizeof exponent);
    exponent = std::max(exponent >> 23, 7u) - 6;  // 1 to 248: the scale and its inverse are normal
    const auto inverse = hn::BitCast(d, hn::Set(Words(), (254 - exponent) << 23));
    const auto not_finite = hn::Set(integers, std::int32_t{kNotFinite});
    const auto limit = hn::Set(integers, std::int32_t{127});
    HWY_ALIGN std::int8_t values[kSize];
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      const auto value = hn::Load(d, from + i);
      const auto is_finite = hn::Le(hn::Abs(value), largest);
      auto rounded = hn::NearestInt(hn::Mul(hn::IfThenElseZero(is_finite, value), inverse));
      rounded = hn::Min(hn::Max(rounded, hn::Neg(limit)), limit);
      rounded = hn::IfThenElse(hn::RebindMask(integers, is_finite), rounded, not_finite);
      hn::StoreU(hn::DemoteTo(narrow, rounded), narrow, values + i);
    }
    to[0] = static_cast<std::uint8_t>(exponent);
    std::memcpy(to + 1, values, present());
  }

  /// To `to`, or added to it.
  template <bool kAdds>
  HWY_INLINE void unpack(const std::uint8_t* from, float* to) const {
    const Floats d;
    const Signed integers;
    const Bytes narrow;
    HWY_ALIGN std::int8_t short_block[kWhole ? 1 : kSize] = {};
    const auto* values = reinterpret_cast<const std::int8_t*>(from + 1);
    if constexpr (!kWhole) {
      std::memcpy(short_block, values, present());
      values = short_block;
    }
    const auto scale = hn::BitCast(d, hn::Set(Words(), std::uint32_t{from[0]} << 23));
    const auto nan = hn::BitCast(d, hn::Set(Words(), 0x7FC00000u));
    const auto not_finite = hn::Set(integers, std::int32_t{kNotFinite});
    for (std::size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      const auto value = hn::PromoteTo(integers, hn::LoadU(narrow, values + i));
      const auto scaled = hn::Mul(hn::ConvertTo(d, value), scale);
      const auto is_nan = hn::RebindMask(d, hn::Eq(value, not_finite));
      auto result = hn::IfThenElse(is_nan, nan, scaled);
      if constexpr (kAdds) result = hn::Add(hn::Load(d, to + i), result);
      hn::Store(result, d, to + i);
    }
  }

  const std::size_t present_;
};

template <class Code>
void combine_blocks_of(const CompressedArguments& a) {
  constexpr std::size_t kSize = Block<Code, true>::kSize;
  const Block<Code, true> whole(kSize);
  std::size_t at = 0, packed_at = 0;
  for (; at + kSize <= a.count; at += kSize, packed_at += kSize + 1) {
    whole.combine(a, at, packed_at);
  }
  if (at < a.count) Block<Code, false>(a.count - at).combine(a, at, packed_at);
}

void combine_compressed_target(const CompressedArguments& arguments) {
  if (arguments.type == DataType::float16) return combine_blocks_of<Float16Code>(arguments);
  if (arguments.type == DataType::bfloat16) return combine_blocks_of<BFloat16Code>(arguments);
  combine_blocks_of<Float32Code>(arguments);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti {
namespace detail {

HWY_EXPORT(combine_compressed_target);

static void combine_blocks(const CompressedArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(combine_compressed_target)(arguments);
}

}  // namespace detail

void combine_compressed(DataType type, std::span<void* const> destinations,
                        std::size_t compressed_destinations, std::span<const Source> sources,
                        std::span<const unsigned char> compressed_sources, std::size_t count,
                        const CombineOptions& options) {
  if (!is_compressible(type)) {
    throw Error(ErrorCode::internal,
                "combine_compressed: " + std::string(name(type)) + " has no compressed form");
  }
  if (sources.empty() || destinations.empty()) return;
  const DefaultFloatEnvironment environment;
  detail::combine_blocks(
      {type, destinations, compressed_destinations, sources, compressed_sources, count, options});
}

void compress(DataType type, const void* from, void* to, std::size_t count) {
  const Source source{from};
  const unsigned char plain = 0;
  combine_compressed(type, {&to, 1}, 1, {&source, 1}, {&plain, 1}, count);
}

void decompress(DataType type, const void* from, void* to, std::size_t count) {
  const Source source{from};
  const unsigned char compressed = 1;
  combine_compressed(type, {&to, 1}, 0, {&source, 1}, {&compressed, 1}, count);
}

}  // namespace tutti
#endif  // HWY_ONCE

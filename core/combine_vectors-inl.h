// Data types as vectors, for core/combine_kernels.cpp: unpacking the elements of one full vector
// into the type of the reduction, and packing them again.
//
// A narrow float fills 32-bit lanes without any shuffle: a vector of 16-bit elements is read as
// 32-bit lanes that hold two elements each, a vector of 8-bit elements as lanes that hold four.
// Part j is "element j of each lane", shifted down, and becomes one vector of float32. Packing
// shifts back and ORs. Only float16 with the F16C instructions goes by halves instead, as those
// convert contiguous elements.
//
// Conversions use integer arithmetic, and floating point only where no operand or result is
// subnormal, so that flush-to-zero modes do not change them.
//
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_CORE_COMBINE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_CORE_COMBINE_VECTORS_INL_H_
#undef TUTTI_CORE_COMBINE_VECTORS_INL_H_
#else
#define TUTTI_CORE_COMBINE_VECTORS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;
using Signed = hn::ScalableTag<std::int32_t>;
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;

// Elements of one vector in the type of the reduction: one vector, or several parts.
template <class V, int n>
struct Parts {
  V part[n];
};

// Types that need no other type for the reduction.
template <class T>
struct Native {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using Unpacked = Parts<hn::Vec<Tag>, 1>;
  static constexpr int kParts = 1;

  static HWY_INLINE Unpacked unpack(hn::Vec<Tag> v) { return {{v}}; }
  static HWY_INLINE hn::Vec<Tag> pack(const Unpacked& u) { return u.part[0]; }
};

// --- Narrow floats: one 32-bit lane's worth
// -------------------------------------------------------
//
// decode: the code of one element, in the low bits of each lane and zeros above, to float32.
// encode: float32 to the code, in the low bits and zeros above; to nearest even.

struct BFloat16Code {
  using Element = std::uint16_t;

  static HWY_INLINE FloatVector decode(WordVector code) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(code));
  }
  static HWY_INLINE WordVector encode(FloatVector value) {
    const Words d;
    const WordVector bits = hn::BitCast(d, value);
    const WordVector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const WordVector rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu)));
    const WordVector quiet = hn::Or(bits, hn::Set(d, 0x400000u));
    const auto nan = hn::RebindMask(d, hn::IsNaN(value));
    return hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  }
};

// IEEE-like formats with few exponent bits. `kOverflow`: the code of infinity, or of NaN where
// there is no infinity; `kNaN`: the code of a NaN.
template <class T, int kMantissa, int kBias, std::uint32_t kOverflow, std::uint32_t kNaN>
struct SmallFloatCode {
  using Element = T;
  static constexpr int kWidth = 8 * sizeof(T);
  static constexpr int kShift = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = 127 - kBias;

  static HWY_INLINE FloatVector decode(WordVector code) {
    const Words d;
    const Floats df;
    const WordVector magnitude = hn::And(code, hn::Set(d, (1u << (kWidth - 1)) - 1));
    const WordVector sign = hn::ShiftLeft<32 - kWidth>(hn::Xor(code, magnitude));
    WordVector normal = hn::Add(hn::ShiftLeft<kShift>(magnitude), hn::Set(d, kRebias << 23));
    if constexpr (kOverflow == kNaN) {
      const auto nan = hn::Eq(magnitude, hn::Set(d, kNaN));
      normal = hn::IfThenElse(nan, hn::Set(d, 0x7FC00000u), normal);
    } else {
      // The exponent of infinity and NaN moves up to float32's. NaNs are quiet from here on.
      const auto special = hn::Not(hn::Lt(signed_of(magnitude), hn::Set(Signed(), kOverflow)));
      const auto nan = hn::Gt(signed_of(magnitude), hn::Set(Signed(), kOverflow));
      const WordVector raised = hn::Or(normal, hn::Set(d, 0x7F800000u));
      normal = hn::IfThenElse(hn::RebindMask(d, special), raised, normal);
      normal = hn::Or(normal, hn::IfThenElseZero(hn::RebindMask(d, nan), hn::Set(d, 0x400000u)));
    }
    // Subnormal: the code counts units of the smallest number.
    const std::uint32_t unit_exponent = 127 + 1 - kBias - kMantissa;
    const FloatVector unit = hn::BitCast(df, hn::Set(d, unit_exponent << 23));
    const FloatVector counted = hn::Mul(hn::ConvertTo(df, signed_of(magnitude)), unit);
    const auto subnormal = hn::Lt(signed_of(magnitude), hn::Set(Signed(), 1 << kMantissa));
    const WordVector bits =
        hn::IfThenElse(hn::RebindMask(d, subnormal), hn::BitCast(d, counted), normal);
    return hn::BitCast(df, hn::Or(bits, sign));
  }

  static HWY_INLINE WordVector encode(FloatVector value) {
    const Words d;
    const Floats df;
    const WordVector bits = hn::BitCast(d, value);
    const WordVector magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const WordVector sign = hn::ShiftRight<32 - kWidth>(hn::Xor(bits, magnitude));
    const WordVector odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(d, 1u));
    // Rounding carries into the exponent where necessary. Below the normal range this wraps, and
    // the result is not used.
    const WordVector rebiased = hn::Sub(magnitude, hn::Set(d, kRebias << 23));
    const WordVector half = hn::Set(d, (1u << (kShift - 1)) - 1);
    const WordVector normal = hn::ShiftRight<kShift>(hn::Add(rebiased, hn::Add(odd, half)));
    // Subnormal: adding a number whose last bit is the smallest subnormal rounds there.
    const std::uint32_t magic_bits = (127 + 24 - kBias - kMantissa) << 23;
    const FloatVector magic = hn::BitCast(df, hn::Set(d, magic_bits));
    const FloatVector shifted = hn::Add(hn::BitCast(df, magnitude), magic);
    const WordVector counted = hn::Sub(hn::BitCast(d, shifted), hn::Set(d, magic_bits));
    const auto smallest = hn::Set(Signed(), static_cast<std::int32_t>((kRebias + 1) << 23));
    const auto subnormal = hn::RebindMask(d, hn::Lt(signed_of(magnitude), smallest));
    WordVector code = hn::IfThenElse(subnormal, counted, normal);
    code = hn::Min(code, hn::Set(d, kOverflow));
    if constexpr (kOverflow != kNaN) {
      const auto nan = hn::RebindMask(d, hn::IsNaN(value));
      code = hn::IfThenElse(nan, hn::Set(d, kNaN), code);
    }
    return hn::Or(code, sign);
  }

 private:
  static HWY_INLINE hn::Vec<Signed> signed_of(WordVector v) { return hn::BitCast(Signed(), v); }
};

using Float16Code = SmallFloatCode<std::uint16_t, 10, 15, 0x7C00, 0x7E00>;
using Float8E4M3Code = SmallFloatCode<std::uint8_t, 3, 7, 0x7F, 0x7F>;
using Float8E5M2Code = SmallFloatCode<std::uint8_t, 2, 15, 0x7C, 0x7E>;

// --- Narrow floats: one vector's worth
// ------------------------------------------------------------

#if HWY_TARGET == HWY_SCALAR
// One element per "vector", so there are no parts.
template <class Code>
struct Narrow {
  using Element = typename Code::Element;
  using Tag = hn::ScalableTag<Element>;
  using Unpacked = Parts<FloatVector, 1>;
  static constexpr int kParts = 1;

  static HWY_INLINE Unpacked unpack(hn::Vec<Tag> v) {
    return {{Code::decode(hn::PromoteTo(Words(), v))}};
  }
  static HWY_INLINE hn::Vec<Tag> pack(const Unpacked& u) {
    return hn::TruncateTo(Tag(), Code::encode(u.part[0]));
  }
};
#else
template <class Code>
struct Narrow {
  using Element = typename Code::Element;
  using Tag = hn::ScalableTag<Element>;
  static constexpr int kParts = 4 / sizeof(Element);
  static constexpr int kWidth = 8 * sizeof(Element);
  using Unpacked = Parts<FloatVector, kParts>;

  static HWY_INLINE Unpacked unpack(hn::Vec<Tag> v) {
    const Words d;
    const WordVector lanes = hn::BitCast(d, v);
    const WordVector mask = hn::Set(d, (1u << kWidth) - 1);
    Unpacked u;
    u.part[0] = Code::decode(hn::And(lanes, mask));
    if constexpr (kParts == 4) {
      u.part[1] = Code::decode(hn::And(hn::ShiftRight<8>(lanes), mask));
      u.part[2] = Code::decode(hn::And(hn::ShiftRight<16>(lanes), mask));
    }
    u.part[kParts - 1] = Code::decode(hn::ShiftRight<32 - kWidth>(lanes));
    return u;
  }
  static HWY_INLINE hn::Vec<Tag> pack(const Unpacked& u) {
    WordVector lanes = hn::Or(Code::encode(u.part[0]),
                              hn::ShiftLeft<32 - kWidth>(Code::encode(u.part[kParts - 1])));
    if constexpr (kParts == 4) {
      lanes = hn::Or(lanes, hn::ShiftLeft<8>(Code::encode(u.part[1])));
      lanes = hn::Or(lanes, hn::ShiftLeft<16>(Code::encode(u.part[2])));
    }
    return hn::BitCast(Tag(), lanes);
  }
};
#endif

// HWY_AVX2 and its betters include F16C; a lower value is a better target.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
struct Float16 {
  using Element = std::uint16_t;
  using Tag = hn::ScalableTag<std::uint16_t>;
  using Half = hn::Rebind<hwy::float16_t, Floats>;
  using HalfBits = hn::Rebind<std::uint16_t, Floats>;
  using Unpacked = Parts<FloatVector, 2>;
  static constexpr int kParts = 2;

  static HWY_INLINE Unpacked unpack(hn::Vec<Tag> v) {
    return {{hn::PromoteTo(Floats(), hn::BitCast(Half(), hn::LowerHalf(HalfBits(), v))),
             hn::PromoteTo(Floats(), hn::BitCast(Half(), hn::UpperHalf(HalfBits(), v)))}};
  }
  static HWY_INLINE hn::Vec<Tag> pack(const Unpacked& u) {
    return hn::Combine(Tag(), hn::BitCast(HalfBits(), hn::DemoteTo(Half(), u.part[1])),
                       hn::BitCast(HalfBits(), hn::DemoteTo(Half(), u.part[0])));
  }
};
#else
using Float16 = Narrow<Float16Code>;
#endif

using BFloat16 = Narrow<BFloat16Code>;
using Float8E4M3 = Narrow<Float8E4M3Code>;
using Float8E5M2 = Narrow<Float8E5M2Code>;

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

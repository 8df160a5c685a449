// Compiled once per instruction set, as combine_kernels.cpp is. It has the same conversions.
#include "core/convert.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/float_types.h"
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/convert.cpp"
#include "hwy/foreach_target.h"
// The order matters: what follows is included once per target.
#include "core/combine_vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {

template <class Code>
void widen_all(const void* from, void* to, std::size_t count) {
  using Element = typename Code::Element;
  const Floats floats;
  const hn::Rebind<Element, Floats> narrow;
  const std::size_t lanes = hn::Lanes(floats);
  const auto* const in = static_cast<const Element*>(from);
  auto* const out = static_cast<float*>(to);
  const auto step = [&](const Element* source, float* target) HWY_ATTR {
    const auto codes = hn::LoadU(narrow, source);
    hn::StoreU(Code::decode(hn::PromoteTo(Words(), codes)), floats, target);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(in + i, out + i);
  if (i == count) return;
  Element rest[hn::MaxLanes(narrow)] = {};
  float results[hn::MaxLanes(floats)];
  std::copy(in + i, in + count, rest);
  step(rest, results);
  std::copy(results, results + (count - i), out + i);
}

template <class Code>
void narrow_all(const void* from, void* to, std::size_t count) {
  using Element = typename Code::Element;
  const Floats floats;
  const hn::Rebind<Element, Floats> narrow;
  const std::size_t lanes = hn::Lanes(floats);
  const auto* const in = static_cast<const float*>(from);
  auto* const out = static_cast<Element*>(to);
  const auto step = [&](const float* source, Element* target) HWY_ATTR {
    const auto codes = Code::encode(hn::LoadU(floats, source));
    hn::StoreU(hn::TruncateTo(narrow, codes), narrow, target);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(in + i, out + i);
  if (i == count) return;
  float rest[hn::MaxLanes(floats)] = {};
  Element results[hn::MaxLanes(narrow)];
  std::copy(in + i, in + count, rest);
  step(rest, results);
  std::copy(results, results + (count - i), out + i);
}

// Of the codes of floats: whether the exponent of one is all ones.
template <class Element>
bool finite_codes(const void* data, std::size_t count, Element exponent) {
  const auto* const in = static_cast<const Element*>(data);
  const hn::ScalableTag<Element> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, exponent);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::And(hn::LoadU(d, in + i), mask), mask))) return false;
  }
  for (; i < count; ++i) {
    if ((in[i] & exponent) == exponent) return false;
  }
  return true;
}

void widen_target(const void* from, DataType type, void* to, std::size_t count) {
  if (type == DataType::float16) return widen_all<Float16Code>(from, to, count);
  if (type == DataType::bfloat16) return widen_all<BFloat16Code>(from, to, count);
  if (type == DataType::float8_e4m3) return widen_all<Float8E4M3Code>(from, to, count);
  widen_all<Float8E5M2Code>(from, to, count);
}

void narrow_target(const void* from, void* to, DataType type, std::size_t count) {
  if (type == DataType::float16) return narrow_all<Float16Code>(from, to, count);
  if (type == DataType::bfloat16) return narrow_all<BFloat16Code>(from, to, count);
  if (type == DataType::float8_e4m3) return narrow_all<Float8E4M3Code>(from, to, count);
  narrow_all<Float8E5M2Code>(from, to, count);
}

bool all_finite_target(const void* data, DataType type, std::size_t count) {
  switch (type) {
    case DataType::float16:
      return finite_codes<std::uint16_t>(data, count, 0x7C00);
    case DataType::bfloat16:
      return finite_codes<std::uint16_t>(data, count, 0x7F80);
    case DataType::float32:
      return finite_codes<std::uint32_t>(data, count, 0x7F800000);
    case DataType::float64:
      return finite_codes<std::uint64_t>(data, count, 0x7FF0000000000000);
    case DataType::float8_e4m3:  // its one NaN pattern
      return finite_codes<std::uint8_t>(data, count, 0x7F);
    case DataType::float8_e5m2:
      return finite_codes<std::uint8_t>(data, count, 0x7C);
    default:
      return true;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti {
namespace detail {

HWY_EXPORT(widen_target);
HWY_EXPORT(narrow_target);
HWY_EXPORT(all_finite_target);

static void widen(const void* from, DataType type, void* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(widen_target)(from, type, to, count);
}
static void narrow(const void* from, void* to, DataType type, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(narrow_target)(from, to, type, count);
}
static bool are_finite(const void* data, DataType type, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(all_finite_target)(data, type, count);
}

}  // namespace detail
namespace {

template <class From, class To>
void convert_plainly(const void* from, void* to, std::size_t count) {
  const auto* const in = static_cast<const From*>(from);
  auto* const out = static_cast<To*>(to);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<To>(in[i]);
}

/// From float64, in one rounding.
template <class To, To (*narrow)(double)>
void narrow_doubles(const void* from, void* to, std::size_t count) {
  const auto* const in = static_cast<const double*>(from);
  auto* const out = static_cast<To*>(to);
  for (std::size_t i = 0; i < count; ++i) out[i] = narrow(in[i]);
}

}  // namespace

void convert(const void* from, DataType from_type, void* to, DataType to_type, std::size_t count) {
  if (!is_float(from_type) || !is_float(to_type)) {
    throw Error(ErrorCode::invalid_argument, "convert: from " + std::string(name(from_type)) +
                                                 " to " + std::string(name(to_type)) +
                                                 ": both have to be floating-point types");
  }
  if (count == 0) return;  // then there need be no memory
  const DefaultFloatEnvironment environment;
  if (from_type == to_type) {
    if (from != to) std::memcpy(to, from, count * size_of(to_type));
  } else if (from_type == DataType::float32 && to_type == DataType::float64) {
    convert_plainly<float, double>(from, to, count);
  } else if (from_type == DataType::float64 && to_type == DataType::float32) {
    convert_plainly<double, float>(from, to, count);
  } else if (to_type == DataType::float32) {
    detail::widen(from, from_type, to, count);
  } else if (from_type == DataType::float32) {
    detail::narrow(from, to, to_type, count);
  } else if (from_type == DataType::float64) {
    if (to_type == DataType::float16) narrow_doubles<std::uint16_t, to_float16>(from, to, count);
    if (to_type == DataType::bfloat16) narrow_doubles<std::uint16_t, to_bfloat16>(from, to, count);
    if (to_type == DataType::float8_e4m3) {
      narrow_doubles<std::uint8_t, to_float8_e4m3>(from, to, count);
    }
    if (to_type == DataType::float8_e5m2) {
      narrow_doubles<std::uint8_t, to_float8_e5m2>(from, to, count);
    }
  } else {
    // A narrow type, which float32 holds exactly, to another one or to float64.
    float between[256];
    const auto* in = static_cast<const std::byte*>(from);
    auto* out = static_cast<std::byte*>(to);
    while (count > 0) {
      const std::size_t some = std::min(count, std::size(between));
      convert(in, from_type, between, DataType::float32, some);
      convert(between, DataType::float32, out, to_type, some);
      in += some * size_of(from_type);
      out += some * size_of(to_type);
      count -= some;
    }
  }
}

bool all_finite(const void* data, DataType type, std::size_t count) {
  return detail::are_finite(data, type, count);
}

}  // namespace tutti
#endif  // HWY_ONCE

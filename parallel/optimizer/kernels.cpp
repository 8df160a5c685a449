// Compiled once per instruction set by Highway's foreach_target.h, as core/combine_kernels.cpp is,
// for the same instruction sets. The rest that is less than a vector goes through a vector on the
// stack, so that every element meets the same instructions; products and sums are never fused.
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "parallel/optimizer/kernels.cpp"
#include "hwy/foreach_target.h"
// The order matters: what follows is included once per target.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/combine_vectors-inl.h"
#include "core/error.h"
#include "hwy/highway.h"
#include "parallel/optimizer/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::parallel::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vectors = tutti::detail::HWY_NAMESPACE;

// --- Updates -------------------------------------------------------------------------------------

template <class T>
struct AdamW {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kStates = 2;

  explicit AdamW(const AdamWConstants& c)
      : scale(set(c.scale)),
        keep(set(c.keep)),
        beta1(set(c.beta1)),
        other1(set(1 - c.beta1)),
        beta2(set(c.beta2)),
        other2(set(1 - c.beta2)),
        rate(set(c.rate)),
        root(set(c.root)),
        epsilon(set(c.epsilon)) {}
  static HWY_INLINE V set(double value) { return hn::Set(D(), static_cast<T>(value)); }

  HWY_INLINE void operator()(T* p, const T* gradient, T* m, T* v) const {
    const D d;
    const V g = hn::Mul(hn::LoadU(d, gradient), scale);
    const V first = hn::Add(hn::Mul(beta1, hn::LoadU(d, m)), hn::Mul(other1, g));
    const V second = hn::Add(hn::Mul(beta2, hn::LoadU(d, v)), hn::Mul(other2, hn::Mul(g, g)));
    const V divisor = hn::Add(hn::Mul(hn::Sqrt(second), root), epsilon);
    const V kept = hn::Mul(hn::LoadU(d, p), keep);
    hn::StoreU(first, d, m);
    hn::StoreU(second, d, v);
    hn::StoreU(hn::Sub(kept, hn::Mul(rate, hn::Div(first, divisor))), d, p);
  }

  V scale, keep, beta1, other1, beta2, other2, rate, root, epsilon;
};

template <class T, bool has_momentum>
struct Sgd {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::size_t kStates = has_momentum ? 1 : 0;

  explicit Sgd(const SgdConstants& c)
      : scale(set(c.scale)),
        decay(set(c.decay)),
        momentum(set(c.momentum)),
        rate(set(c.rate)),
        nesterov(c.nesterov) {}
  static HWY_INLINE V set(double value) { return hn::Set(D(), static_cast<T>(value)); }

  HWY_INLINE void operator()(T* p, const T* gradient, T* buffer, T*) const {
    const D d;
    const V before = hn::LoadU(d, p);
    V step = hn::Add(hn::Mul(hn::LoadU(d, gradient), scale), hn::Mul(before, decay));
    if constexpr (has_momentum) {
      const V kept = hn::Add(hn::Mul(momentum, hn::LoadU(d, buffer)), step);
      hn::StoreU(kept, d, buffer);
      step = nesterov ? hn::Add(step, hn::Mul(momentum, kept)) : kept;
    }
    hn::StoreU(hn::Sub(before, hn::Mul(rate, step)), d, p);
  }

  V scale, decay, momentum, rate;
  bool nesterov;
};

template <class T, class Update>
void update(const Block& block, const Update& update_vector) {
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  auto* p = static_cast<T*>(block.master);
  const auto* g = static_cast<const T*>(block.gradient);
  auto* a = static_cast<T*>(block.state[0]);
  auto* b = static_cast<T*>(block.state[1]);
  // Of a state that there is not, nothing is read: any address will do.
  const auto at = [](T* state, std::size_t i) HWY_ATTR { return state ? state + i : nullptr; };
  std::size_t i = 0;
  for (; i + kLanes <= block.count; i += kLanes) update_vector(p + i, g + i, at(a, i), at(b, i));
  const std::size_t left = block.count - i;
  if (left == 0) return;
  alignas(64) T rest[4][kLanes] = {};
  std::copy_n(p + i, left, rest[0]);
  std::copy_n(g + i, left, rest[1]);
  if constexpr (Update::kStates > 0) std::copy_n(a + i, left, rest[2]);
  if constexpr (Update::kStates > 1) std::copy_n(b + i, left, rest[3]);
  update_vector(rest[0], rest[1], rest[2], rest[3]);
  std::copy_n(rest[0], left, p + i);
  if constexpr (Update::kStates > 0) std::copy_n(rest[2], left, a + i);
  if constexpr (Update::kStates > 1) std::copy_n(rest[3], left, b + i);
}

void adamw_target(DataType type, const Block& block, const AdamWConstants& c) {
  if (type == DataType::float64) return update<double>(block, AdamW<double>(c));
  update<float>(block, AdamW<float>(c));
}

template <class T>
void sgd_of(const Block& block, const SgdConstants& c) {
  if (c.momentum != 0) return update<T>(block, Sgd<T, true>(c));
  update<T>(block, Sgd<T, false>(c));
}

void sgd_target(DataType type, const Block& block, const SgdConstants& c) {
  if (type == DataType::float64) return sgd_of<double>(block, c);
  sgd_of<float>(block, c);
}

// --- Conversions ---------------------------------------------------------------------------------

using Floats = hn::ScalableTag<float>;
using Codes = hn::Rebind<std::uint16_t, Floats>;

template <class Code>
HWY_INLINE void widen_vector(const std::uint16_t* in, float* out) {
  const auto codes = hn::PromoteTo(vectors::Words(), hn::LoadU(Codes(), in));
  hn::StoreU(Code::decode(codes), Floats(), out);
}

template <class Code>
HWY_INLINE void narrow_vector(const float* in, std::uint16_t* out) {
  const auto codes = Code::encode(hn::LoadU(Floats(), in));
  hn::StoreU(hn::DemoteTo(Codes(), hn::BitCast(vectors::Signed(), codes)), Codes(), out);
}

template <class Code>
void widen(const std::uint16_t* in, float* out, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(Floats());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) widen_vector<Code>(in + i, out + i);
  if (i == count) return;
  std::uint16_t codes[kLanes] = {};
  float values[kLanes];
  std::copy_n(in + i, count - i, codes);
  widen_vector<Code>(codes, values);
  std::copy_n(values, count - i, out + i);
}

template <class Code>
void narrow(const float* in, std::uint16_t* out, std::size_t count) {
  constexpr std::size_t kLanes = hn::MaxLanes(Floats());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) narrow_vector<Code>(in + i, out + i);
  if (i == count) return;
  float values[kLanes] = {};
  std::uint16_t codes[kLanes];
  std::copy_n(in + i, count - i, values);
  narrow_vector<Code>(values, codes);
  std::copy_n(codes, count - i, out + i);
}

void widen_target(DataType from, const void* in, float* out, std::size_t count) {
  const auto* codes = static_cast<const std::uint16_t*>(in);
  if (from == DataType::bfloat16) return widen<vectors::BFloat16Code>(codes, out, count);
  widen<vectors::Float16Code>(codes, out, count);
}

void narrow_target(const float* in, DataType to, void* out, std::size_t count) {
  auto* codes = static_cast<std::uint16_t*>(out);
  if (to == DataType::bfloat16) return narrow<vectors::BFloat16Code>(in, codes, count);
  narrow<vectors::Float16Code>(in, codes, count);
}

// --- Sums ----------------------------------------------------------------------------------------

using Doubles = hn::CappedTag<double, 8>;

HWY_INLINE hn::Vec<Doubles> load_doubles(const double* from) { return hn::LoadU(Doubles(), from); }
HWY_INLINE hn::Vec<Doubles> load_doubles(const float* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), from));
}

template <class T>
void add_squares(const T* data, std::size_t count, double* sums) {
  constexpr std::size_t kLanes = hn::MaxLanes(Doubles());
  constexpr std::size_t kVectors = 8 / kLanes;
  hn::Vec<Doubles> parts[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) parts[v] = hn::LoadU(Doubles(), sums + v * kLanes);
  const auto add = [&](const T* from) HWY_ATTR {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto value = load_doubles(from + v * kLanes);
      parts[v] = hn::Add(parts[v], hn::Mul(value, value));
    }
  };
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) add(data + i);
  if (i < count) {
    T rest[8] = {};
    std::copy_n(data + i, count - i, rest);
    add(rest);
  }
  for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(parts[v], Doubles(), sums + v * kLanes);
}

void add_squares_target(DataType type, const void* data, std::size_t count, double* sums) {
  if (type == DataType::float64) {
    return add_squares(static_cast<const double*>(data), count, sums);
  }
  add_squares(static_cast<const float*>(data), count, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::parallel::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/highway-inl.h"

namespace tutti::parallel::kernels {

HWY_EXPORT(adamw_target);
HWY_EXPORT(sgd_target);
HWY_EXPORT(widen_target);
HWY_EXPORT(narrow_target);
HWY_EXPORT(add_squares_target);

namespace {

bool is_narrow(DataType type) { return type == DataType::bfloat16 || type == DataType::float16; }

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorCode::internal, std::string("parallel kernels: ") + what +
                                       " is not for these types; this is a bug in Tutti");
}

constexpr std::size_t kPiece = 1024;  // floats that stay in the first-level cache

}  // namespace

void adamw(DataType type, const Block& block, const AdamWConstants& constants) {
  HWY_DYNAMIC_DISPATCH(adamw_target)(type, block, constants);
}

void sgd(DataType type, const Block& block, const SgdConstants& constants) {
  HWY_DYNAMIC_DISPATCH(sgd_target)(type, block, constants);
}

void convert(DataType from, const void* in, DataType to, void* out, std::size_t count) {
  if (count == 0) return;
  if (from == to) {
    if (in != out) std::memmove(out, in, count * size_of(from));
  } else if (is_narrow(from) && to == DataType::float32) {
    HWY_DYNAMIC_DISPATCH(widen_target)(from, in, static_cast<float*>(out), count);
  } else if (from == DataType::float32 && is_narrow(to)) {
    HWY_DYNAMIC_DISPATCH(narrow_target)(static_cast<const float*>(in), to, out, count);
  } else if (is_narrow(from) && is_narrow(to)) {
    float values[kPiece];
    const auto* source = static_cast<const std::uint16_t*>(in);
    auto* target = static_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < count; i += kPiece) {
      const std::size_t n = std::min(kPiece, count - i);
      convert(from, source + i, DataType::float32, values, n);
      convert(DataType::float32, values, to, target + i, n);
    }
  } else {
    refuse("convert()");
  }
}

double sum_of_squares(DataType type, const void* data, std::size_t count) {
  double sums[8] = {};
  if (type == DataType::float64 || type == DataType::float32) {
    HWY_DYNAMIC_DISPATCH(add_squares_target)(type, data, count, sums);
  } else if (is_narrow(type)) {
    float values[kPiece];
    const auto* source = static_cast<const std::uint16_t*>(data);
    for (std::size_t i = 0; i < count; i += kPiece) {
      const std::size_t n = std::min(kPiece, count - i);
      convert(type, source + i, DataType::float32, values, n);
      HWY_DYNAMIC_DISPATCH(add_squares_target)(DataType::float32, values, n, sums);
    }
  } else {
    refuse("sum_of_squares()");
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace tutti::parallel::kernels
#endif

// An engine's arithmetic on one element of memory: a conversion, a sum, an optimizer's update. GPUs
// and the host compile the same source. On the host, the tests compare it with the vectorised loops
// (core/combine.h, optimizer/kernels.h): it has the same bits, because each operation is rounded
// once.
//
// Numbers are of type T in registers: double for float64, else float.
#pragma once

#include <cmath>
#include <cstddef>

#include "execute/cuda/element.h"
#include "parallel/optimizer/kernels.h"

namespace tutti::parallel::gpu_elements {

template <DataType type, class T>
TUTTI_HD T load_of(const void* data, std::size_t i) {
  using Element = device::ElementOf<type>;
  return Element::widen(static_cast<const typename Element::Storage*>(data)[i]);
}

template <DataType type, class T>
TUTTI_HD void store_of(void* data, std::size_t i, T value) {
  using Element = device::ElementOf<type>;
  static_cast<typename Element::Storage*>(data)[i] = Element::narrow(value);
}

/// Of float64 for double, else of float32, bfloat16 or float16.
template <class T>
TUTTI_HD T load(DataType type, const void* data, std::size_t i) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return load_of<DataType::float64, T>(data, i);
  } else {
    if (type == DataType::bfloat16) return load_of<DataType::bfloat16, T>(data, i);
    if (type == DataType::float16) return load_of<DataType::float16, T>(data, i);
    return load_of<DataType::float32, T>(data, i);
  }
}

template <class T>
TUTTI_HD void store(DataType type, void* data, std::size_t i, T value) {
  if constexpr (sizeof(T) == sizeof(double)) {
    store_of<DataType::float64, T>(data, i, value);
  } else {
    if (type == DataType::bfloat16) return store_of<DataType::bfloat16, T>(data, i, value);
    if (type == DataType::float16) return store_of<DataType::float16, T>(data, i, value);
    store_of<DataType::float32, T>(data, i, value);
  }
}

TUTTI_HD float root_of(float v) {
#if TUTTI_ON_DEVICE
  return __fsqrt_rn(v);
#else
  return std::sqrt(v);
#endif
}
TUTTI_HD double root_of(double v) {
#if TUTTI_ON_DEVICE
  return __dsqrt_rn(v);
#else
  return std::sqrt(v);
#endif
}

/// Runs of some words each, whose beginnings are so many bytes apart.
template <class Word>
struct CopyRows {
  std::byte* to;
  std::size_t to_step;
  const std::byte* from;
  std::size_t from_step, words;
  TUTTI_HD void operator()(std::size_t i) const {
    const std::size_t row = i / words, at = i % words * sizeof(Word);
    *reinterpret_cast<Word*>(to + row * to_step + at) =
        *reinterpret_cast<const Word*>(from + row * from_step + at);
  }
};

template <class T>
struct Convert {
  DataType from;
  const void* in;
  DataType to;
  void* out;
  TUTTI_HD void operator()(std::size_t i) const { store<T>(to, out, i, load<T>(from, in, i)); }
};

/// values / divisor + before; `before` may be null.
template <class T>
struct Add {
  DataType type;
  void* to;
  const void* values;
  unsigned divisor;
  const void* before;
  TUTTI_HD void operator()(std::size_t i) const {
    T sum = load<T>(type, values, i);
    if (divisor > 1) {
      sum = device::quotient_of(sum, {.divisor = divisor, .reciprocal = 1.0 / divisor});
    }
    if (before != nullptr) sum = sum + load<T>(type, before, i);
    store<T>(type, to, i, sum);
  }
};

/// What both updates have.
template <class T>
struct Slice {
  T* master;
  T* state[2];
  DataType gradient_type;
  const void* gradient;
  DataType compute_type;
  void* compute;  // null: not needed
  TUTTI_HD void put(std::size_t i, T value) const {
    master[i] = value;
    if (compute != nullptr) store<T>(compute_type, compute, i, value);
  }
};

template <class T>
struct AdamW {
  AdamW(const Slice<T>& s, const kernels::AdamWConstants& c)
      : slice(s),
        scale(static_cast<T>(c.scale)),
        keep(static_cast<T>(c.keep)),
        beta1(static_cast<T>(c.beta1)),
        other1(static_cast<T>(1 - c.beta1)),
        beta2(static_cast<T>(c.beta2)),
        other2(static_cast<T>(1 - c.beta2)),
        rate(static_cast<T>(c.rate)),
        root(static_cast<T>(c.root)),
        epsilon(static_cast<T>(c.epsilon)) {}
  TUTTI_HD void operator()(std::size_t i) const {
    const T g = load<T>(slice.gradient_type, slice.gradient, i) * scale;
    const T first = beta1 * slice.state[0][i] + other1 * g;
    const T second = beta2 * slice.state[1][i] + other2 * (g * g);
    slice.state[0][i] = first;
    slice.state[1][i] = second;
    const T divisor = root_of(second) * root + epsilon;
    slice.put(i, slice.master[i] * keep - rate * (first / divisor));
  }
  Slice<T> slice;
  T scale, keep, beta1, other1, beta2, other2, rate, root, epsilon;
};

template <class T>
struct Sgd {
  Sgd(const Slice<T>& s, const kernels::SgdConstants& c)
      : slice(s),
        scale(static_cast<T>(c.scale)),
        decay(static_cast<T>(c.decay)),
        momentum(static_cast<T>(c.momentum)),
        rate(static_cast<T>(c.rate)),
        has_momentum(c.momentum != 0),
        nesterov(c.nesterov) {}
  TUTTI_HD void operator()(std::size_t i) const {
    const T before = slice.master[i];
    T step = load<T>(slice.gradient_type, slice.gradient, i) * scale + before * decay;
    if (has_momentum) {
      const T kept = momentum * slice.state[0][i] + step;
      slice.state[0][i] = kept;
      step = nesterov ? step + momentum * kept : kept;
    }
    slice.put(i, before - rate * step);
  }
  Slice<T> slice;
  T scale, decay, momentum, rate;
  bool has_momentum, nesterov;
};

}  // namespace tutti::parallel::gpu_elements

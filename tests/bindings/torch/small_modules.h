// The smallest modules that tests of the engines train, and their data.
#pragma once

#include <ATen/ATen.h>

#include "bindings/torch/fully_shard.h"

namespace tutti::libtorch {

/// Two parameters and a buffer.
struct Two : torch::nn::Module {
  explicit Two(std::int64_t width = 4) {
    a = register_parameter("a", at::arange(width, at::kFloat) + 1);
    b = register_parameter("b", at::arange(width, at::kFloat) + 10);
    scale = register_buffer("scale", at::ones({1}));
  }
  Tensor forward(const Tensor& x, bool with_b = true) const {
    return (with_b ? x * a * b : x * a).sum() * scale.sum();
  }
  Tensor a, b, scale;
};

inline const Tensor& input(int rank) {
  static const Tensor inputs[] = {at::full({4}, 1.f), at::full({4}, 2.f), at::full({4}, 6.f)};
  return inputs[rank];
}

/// Its one unit is the module.
struct Sharded {
  Sharded(parallel::Axis& axis, parallel::Policy policy = parallel::Policy::fsdp())
      : shards({.shard = &axis}, {{"two", &module}}, policy) {}
  Tensor forward(const Tensor& x, bool with_b = true) {
    return shards.forward(
        0, [&](const Tensor& t) { return module.forward(t, with_b); }, x);
  }
  Two module;
  FullyShard shards;
};

}  // namespace tutti::libtorch

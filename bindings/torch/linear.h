// torch::nn::Linear, for models that are trained by DataParallel or FullyShard: it makes its
// gradients in the engine's memory (gradient_places.h), while torch's own are copied. With several
// micro-batches the multiplication itself adds them up.
#pragma once

#include <cstdint>

#include "gradient_places.h"

namespace tutti::libtorch {

class Linear : public torch::nn::Module, public MakesGradients {
 public:
  /// Initialised as torch::nn::Linear is: uniformly, up to 1 / sqrt(in).
  Linear(std::int64_t in, std::int64_t out, at::ScalarType type = at::kFloat, bool has_bias = true);
  /// [..., in] -> [..., out]
  Tensor forward(const Tensor& x);

  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
};

}  // namespace tutti::libtorch

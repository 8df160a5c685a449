// torch::nn::Linear, for models that are trained by DataParallel or FullyShard: its gradients are
// made in the engine's memory (gradient_places.h), where torch's own are copied. Of several
// micro-batches they are added up by the multiplication itself.
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

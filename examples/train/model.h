// A small GPT (pre-norm, learned positions, GELU) as a list of layers, each a function of a tensor:
// what data parallelism, sharding, tensor parallelism and pipelines all cut.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shape.h"

namespace train {

using at::Tensor;

struct Layer : torch::nn::Module {
  explicit Layer(const std::string& name) : torch::nn::Module(name) {}
  virtual Tensor forward(const Tensor& input) = 0;
};

/// Layers [first, last) of embedding, blocks, head: `shape.layers + 2` in all. Their parameters
/// depend on the seed and on what they are, not on which rank makes them.
///   embedding   tokens [B, T] of int64    -> [B, T, C]
///   block       [B, T, C]                 -> [B, T, C]
///   head        [B, T, C]                 -> logits [B, T, V]
std::vector<std::shared_ptr<Layer>> make_layers(const Shape& shape, std::uint64_t seed,
                                                std::int64_t first, std::int64_t last);

/// Mean cross entropy of logits [B, T, V] and the tokens that come next [B, T].
Tensor loss_of(const Tensor& logits, const Tensor& next);

}  // namespace train

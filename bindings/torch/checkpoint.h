// Activation checkpointing: backward computes activations again instead of keeping them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tutti::libtorch {

using Layer = std::function<at::Tensor(const at::Tensor& input)>;

/// body(input). Keeps only `input` of the forward. Backward computes the body a second time, with
/// the same random numbers and the present autocast. Other tensors that the body uses must exist
/// until then, and get no gradients from this call; parameters (leaves) do.
at::Tensor checkpoint(const Layer& body, const at::Tensor& input);

}  // namespace tutti::libtorch

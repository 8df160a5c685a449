// Activation checkpointing: what backward needs is computed again instead of kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tutti::libtorch {

using Layer = std::function<at::Tensor(const at::Tensor& input)>;

/// body(input). Of the forward only `input` is kept; backward computes the body a second time, with
/// the same random numbers, and with autocast as it is now. What the body uses besides its input
/// and parameters is there until then, and needs no gradients of this call but those of parameters
/// (leaves).
at::Tensor checkpoint(const Layer& body, const at::Tensor& input);

}  // namespace tutti::libtorch

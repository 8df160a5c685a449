// What the modules of this folder need of tensors: parameters with their names, element types, and
// tensors over memory that an engine owns.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "../../core/types.h"

namespace tutti::libtorch {

using at::Tensor;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Torch has no stable C++ interface: with another version than it was compiled for, a program may
/// call any function in place of the one that it means. Programs call this before anything of
/// torch; the modules do, too. Throws Error(invalid_usage), with both versions, where the libtorch
/// that is loaded is not the one that this library was built for.
void check_version();

/// The module's parameters that are trained, each once, in the order of named_parameters(). Throws
/// Error(invalid_argument), naming the parameter, for one that is not a dense, contiguous tensor of
/// floating-point numbers on the CPU.
std::vector<NamedTensor> trained_parameters(const torch::nn::Module& module);
/// Buffers, and parameters that are not trained.
std::vector<NamedTensor> other_tensors(const torch::nn::Module& module);
std::vector<NamedTensor> buffers(const torch::nn::Module& module);
/// Those of its parameters that are not trained now.
std::vector<NamedTensor> frozen_parameters(const torch::nn::Module& module);
/// Throws Error(invalid_usage), naming it, where one of them is trained now: each rank would train
/// it by itself.
void refuse_unfrozen(const std::vector<NamedTensor>& frozen);

/// Throws Error(invalid_argument), with `what` it is of, for a type that Tutti does not have.
DataType data_type(at::ScalarType type, const std::string& what);
at::ScalarType scalar_type(DataType type);
/// "float32 [64, 16]".
std::string describe(const Tensor& tensor);
/// Contiguous, over memory that somebody else owns.
Tensor tensor_over(void* memory, at::IntArrayRef sizes, at::ScalarType type);
/// Has these sizes, and no elements: what reads or writes them gets an error of torch, `why`.
Tensor without_elements(at::IntArrayRef sizes, at::ScalarType type, const std::string& why);
/// The same, keeping the memory.
Tensor tensor_over(std::shared_ptr<void> memory, at::IntArrayRef sizes, at::ScalarType type);
/// What went wrong, to be told to other ranks: torch's errors without their backtraces.
std::string what_of(const std::exception& e);
/// Throws Error(invalid_argument) for a gradient that is not dense.
void check_gradient(const Tensor& gradient, const std::string& parameter);

}  // namespace tutti::libtorch

// Helpers for tensors: parameters with their names, element types, and tensors over memory that an
// engine owns.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <tutti/core/types.h>

#include <memory>
#include <string>
#include <vector>

namespace tutti::libtorch {

using at::Tensor;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Torch has no stable C++ interface: with another version than it was compiled for, a program may
/// call any function in place of the right one. Programs call this before anything of torch, and
/// the modules do too. Throws Error(invalid_usage), with both versions, if the loaded libtorch is
/// not the version for which this library was built.
void check_version();

/// The module's trained parameters, each once, in the order of named_parameters(). Throws
/// Error(invalid_argument), with the name, for a parameter that is not a dense, contiguous tensor
/// of floating-point numbers on `device`.
std::vector<NamedTensor> trained_parameters(const torch::nn::Module& module,
                                            c10::Device device = c10::kCPU);
/// Buffers, and parameters that are not trained.
std::vector<NamedTensor> other_tensors(const torch::nn::Module& module);
std::vector<NamedTensor> buffers(const torch::nn::Module& module);
/// The module's parameters that are not trained now.
std::vector<NamedTensor> frozen_parameters(const torch::nn::Module& module);
/// Throws Error(invalid_usage), with the name, if one of them is trained now: each rank would train
/// it by itself.
void refuse_unfrozen(const std::vector<NamedTensor>& frozen);

/// Throws Error(invalid_argument), which names `what`, for a type that Tutti does not have.
DataType data_type(at::ScalarType type, const std::string& what);
at::ScalarType scalar_type(DataType type);
/// "the CPU", "cuda:0".
std::string describe(c10::Device device);
/// "float32 [64, 16]".
std::string describe(const Tensor& tensor);
/// A contiguous tensor over memory of another owner.
Tensor tensor_over(void* memory, at::IntArrayRef sizes, at::ScalarType type,
                   c10::Device device = c10::kCPU);
/// A tensor with these sizes and no elements: reading or writing it is an error of torch with the
/// text `why`.
Tensor without_elements(at::IntArrayRef sizes, at::ScalarType type, const std::string& why,
                        c10::Device device = c10::kCPU);
/// A tensor over `memory`, which it keeps.
Tensor tensor_over(std::shared_ptr<void> memory, at::IntArrayRef sizes, at::ScalarType type,
                   c10::Device device = c10::kCPU);
/// The text of an exception, for other ranks: torch's errors without their backtraces.
std::string what_of(const std::exception& e);
/// Throws Error(invalid_usage) if the layer's matrix is hidden: outside of its unit's forward.
void check_is_here(const Tensor& weight, const std::string& layer);
/// Throws Error(invalid_argument) for a gradient that is not dense, or not on `device`.
void check_gradient(const Tensor& gradient, const std::string& parameter,
                    c10::Device device = c10::kCPU);

}  // namespace tutti::libtorch

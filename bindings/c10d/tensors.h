// From tensors to memory and types that Tutti knows. Other types move as bytes. Types that Tutti
// cannot reduce are reduced as another type, or gathered and folded here.
#pragma once

#include <string>

#include "operation.h"

namespace tutti::pytorch {

/// The number and Tutti's type of the elements in a tensor's memory.
struct Elements {
  DataType type = DataType::uint8;
  std::size_t each = 1;     // of them are an element of the tensor
  std::uint16_t label = 0;  // Call::label: of tensors that Tutti takes for another type
};
/// For operations that only move data.
Elements elements_of(at::ScalarType type);

inline std::size_t count_of(const at::Tensor& t) {
  return static_cast<std::size_t>(t.numel()) * elements_of(t.scalar_type()).each;
}

/// Throws unless there is one dense tensor.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what);
void check_dense(const at::Tensor& tensor, const char* what);
void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* what);
/// Throws for an output that PyTorch's in-place functions refuse: in a mode with gradients, a leaf
/// that requires them, or a view of one. For the calls in which gloo refuses it; others, such as
/// broadcast and all_reduce, write parameters in any mode, there as here.
void check_written(const at::Tensor& output, const char* what);

/// The tensor's elements in memory without gaps, in order, owned by `o`; a copy if necessary.
at::Tensor input(Operation& o, const at::Tensor& tensor);
/// The tensor as input() for output: a copy goes back into it in the end. `reads`: the operation
/// also reads it.
at::Tensor output(Operation& o, const at::Tensor& tensor, bool reads);
/// All elements of several tensors, one after the other.
at::Tensor inputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what);
at::Tensor outputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what);

/// A call of `collective`; an undefined tensor has no memory.
Step step(Collective collective, const at::Tensor& in, const at::Tensor& out, std::size_t count,
          const Elements& elements, ReduceOp op = {}, int root = 0);
Counts counts_of(const std::vector<at::Tensor>& tensors);
bool all_equal(const Counts& counts);

/// How a reduction is carried out.
struct Reduction {
  at::ScalarType as = at::kFloat;  // elements are converted to this type before, and back after
  Elements elements;
  ReduceOp op;
  // Set: Tutti moves all ranks' elements, and this reduces them, along the first dimension.
  at::Tensor (*fold)(const at::Tensor& all) = nullptr;
};
Reduction reduction_of(const ::c10d::ReduceOp& op, at::ScalarType type, const char* what);

/// `text` with the meanings of its labels.
std::string with_labels_named(std::string text);

}  // namespace tutti::pytorch

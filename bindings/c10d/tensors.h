// From tensors to memory and types that Tutti knows. What it does not know is moved as bytes; what
// it cannot reduce is reduced as another type, or gathered and folded here.
#pragma once

#include <string>

#include "operation.h"

namespace tutti::pytorch {

/// How many elements, of which of Tutti's types, a tensor's memory has.
struct Elements {
  DataType type = DataType::uint8;
  std::size_t each = 1;     // of them are an element of the tensor
  std::uint16_t label = 0;  // Call::label: of tensors that Tutti takes for what they are not
};
/// For what is moved.
Elements elements_of(at::ScalarType type);

inline std::size_t count_of(const at::Tensor& t) {
  return static_cast<std::size_t>(t.numel()) * elements_of(t.scalar_type()).each;
}

/// Throws unless there is one dense tensor.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* what);
void check_dense(const at::Tensor& tensor, const char* what);
void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* what);

/// The tensor's elements in memory without gaps, in order, held by `o`; a copy where need be.
at::Tensor input(Operation& o, const at::Tensor& tensor);
/// The same to be written: what is written to a copy comes into the tensor in the end. `reads`: the
/// operation reads it, too.
at::Tensor output(Operation& o, const at::Tensor& tensor, bool reads);
/// All elements of several tensors, one after the other.
at::Tensor inputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what);
at::Tensor outputs(Operation& o, const std::vector<at::Tensor>& tensors, const char* what);

/// A call of `collective`; a tensor that is not defined is no memory.
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

/// `text` with what labels stand for in their place.
std::string with_labels_named(std::string text);

}  // namespace tutti::pytorch

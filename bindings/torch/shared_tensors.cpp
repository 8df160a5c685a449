#include "bindings/torch/shared_tensors.h"

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <span>
#include <string>

#include "parallel/agreement.h"
#include "parallel/broadcast.h"

namespace tutti::libtorch {

void SharedTensors::agree(parallel::Axis& axis) const {
  std::vector<std::string> lines;
  for (const NamedTensor& t : tensors_) lines.push_back(t.name + ": " + describe(t.tensor));
  parallel::agree(axis, "the module's buffers", lines);
}

void SharedTensors::share(parallel::Axis& axis, int root) const {
  const at::NoGradGuard no_grad;
  std::vector<std::span<std::byte>> memory;
  std::vector<Tensor> dense;
  for (const NamedTensor& t : tensors_) {
    dense.push_back(t.tensor.contiguous());
    memory.emplace_back(static_cast<std::byte*>(dense.back().mutable_data_ptr()),
                        dense.back().nbytes());
  }
  parallel::broadcast_all(axis, memory, root);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!dense[i].is_same(tensors_[i].tensor)) tensors_[i].tensor.copy_(dense[i]);
  }
}

}  // namespace tutti::libtorch

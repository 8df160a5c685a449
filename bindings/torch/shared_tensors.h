// Tensors that are the same on all ranks and that no gradient changes: buffers of modules (running
// averages, counts, tables), and untrained parameters. BatchNorm and its like change buffers by a
// rank's own data. So buffers become those of one rank after each step; otherwise ranks would have
// different models.
#pragma once

#include <utility>
#include <vector>

#include "../../parallel/axis.h"
#include "tensors.h"

namespace tutti::libtorch {

class SharedTensors {
 public:
  explicit SharedTensors(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {}
  /// Collective. Throws Error(mismatch) on all ranks if their tensors differ.
  void agree(parallel::Axis& axis) const;
  /// Collective: the tensors become those of rank `root`.
  void share(parallel::Axis& axis, int root = 0) const;
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<NamedTensor> tensors_;
};

}  // namespace tutti::libtorch

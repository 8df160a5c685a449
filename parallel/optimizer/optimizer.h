// Optimizer: updates parameters, or any part of them, by their gradients. An update is elementwise,
// so its bits do not depend on how ranks share the elements.
//
// Parameters have the master type (float32, or float64 for models of that type), and so have the
// states. Gradients may be narrower, and so may the copy for computations.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels.h"

namespace tutti::parallel {

class Optimizer {
 public:
  /// The elements of one update.
  struct Slice {
    DataType type = DataType::float32;  // of master and states: float32 or float64
    void* master = nullptr;
    void* state[2] = {nullptr, nullptr};  // zeros before the first update
    DataType gradient_type = DataType::float32;
    const void* gradient = nullptr;
    DataType compute_type = DataType::float32;
    void* compute = nullptr;  // gets the new values, rounded; null: not needed
    std::size_t count = 0;
    double gradient_scale = 1;  // gradients are multiplied by it first
    double decay_scale = 1;     // and the weight decay by this one
    std::uint64_t step = 1;     // updates that these elements have had, with this one
  };

  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  /// The number of states that it keeps for each element; the parameter does not count.
  virtual std::size_t states() const = 0;
  /// Throws Error(invalid_argument) for impossible options. Called before a step: an error in the
  /// middle would leave some parameters updated and others not.
  virtual void check_options() const {}
  void update(const Slice& slice) const;
  /// update() on memory of a GPU: puts kernels on `stream` (a cudaStream_t), and does not wait.
  /// Throws Error(invalid_usage): a subclass that has kernels overrides it.
  virtual void update_on_gpu(const Slice& slice, void* stream) const;

 private:
  /// Gradients are of the master's type here.
  virtual void update_block(const Slice& slice, const kernels::Block& block) const = 0;
};

/// Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
class AdamW final : public Optimizer {
 public:
  struct Options {
    double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-2;
  };
  AdamW() = default;
  explicit AdamW(const Options& o) : options(o) {}
  std::string_view name() const override { return "AdamW"; }
  std::size_t states() const override { return 2; }
  void check_options() const override;
  /// Of the update of a slice, for kernels of a GPU.
  kernels::AdamWConstants constants(const Slice& slice) const;

  Options options;  // may change from step to step, alike on all ranks

 private:
  void update_block(const Slice& slice, const kernels::Block& block) const override;
};

/// With momentum as in PyTorch: gradients enter the buffer at full weight. Weight decay is added to
/// the gradient.
class Sgd final : public Optimizer {
 public:
  struct Options {
    double learning_rate = 1e-2, momentum = 0, weight_decay = 0;
    bool nesterov = false;
  };
  Sgd() = default;
  explicit Sgd(const Options& o) : options(o) {}
  std::string_view name() const override { return "SGD"; }
  std::size_t states() const override { return options.momentum != 0 ? 1 : 0; }
  void check_options() const override;
  kernels::SgdConstants constants(const Slice& slice) const;

  Options options;

 private:
  void update_block(const Slice& slice, const kernels::Block& block) const override;
};

}  // namespace tutti::parallel

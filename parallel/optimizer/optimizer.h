// Optimizer: how parameters follow their gradients, for whoever holds any part of them. An update
// is elementwise, so its bits do not depend on how the elements are shared among ranks.
//
// The numbers are kept in the master type (float32, or float64 for models of that type) with as
// many states of that type; gradients may be narrower, and so may the copy that computations use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../../core/types.h"
#include "kernels.h"

namespace tutti::parallel {

class Optimizer {
 public:
  /// Elements that are updated together.
  struct Slice {
    DataType type = DataType::float32;  // of master and states: float32 or float64
    void* master = nullptr;
    void* state[2] = {nullptr, nullptr};  // zeros before the first update
    DataType gradient_type = DataType::float32;
    const void* gradient = nullptr;
    DataType compute_type = DataType::float32;
    void* compute = nullptr;  // gets the new values, rounded; null: nobody wants them
    std::size_t count = 0;
    double gradient_scale = 1;  // gradients are multiplied by it first
    double decay_scale = 1;     // and the weight decay by this one
    std::uint64_t step = 1;     // updates that these elements have had, with this one
  };

  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  /// How many numbers it keeps for each parameter, besides the parameter.
  virtual std::size_t states() const = 0;
  /// Throws Error(invalid_argument) for options that are none: before a step, as it would be made
  /// of some parameters only otherwise.
  virtual void check_options() const {}
  void update(const Slice& slice) const;

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

  Options options;  // may change from step to step, alike on all ranks

 private:
  void update_block(const Slice& slice, const kernels::Block& block) const override;
};

/// With momentum as PyTorch has it: the buffer takes up gradients at full weight. Weight decay is
/// added to the gradient.
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

  Options options;

 private:
  void update_block(const Slice& slice, const kernels::Block& block) const override;
};

}  // namespace tutti::parallel

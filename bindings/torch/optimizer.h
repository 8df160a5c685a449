// An optimizer of parallel/optimizer for parameters that are ordinary tensors, with gradients in
// .grad(): each rank has the whole model, or its own part of it. One pass over memory, and the same
// bits as the sharded engine's step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "../../parallel/axis.h"
#include "../../parallel/optimizer/optimizer.h"
#include "parameter_state.h"
#include "tensors.h"

namespace tutti::libtorch {

/// What an optimizer does with a parameter.
struct Treatment {
  double weight_decay = 1;  // times the optimizer's: 0 for biases and norms
  bool in_norm = true;      // of the gradients: one of ranks that have copies counts it
};
using Treat = std::function<Treatment(const NamedTensor& parameter)>;

class LocalOptimizer {
 public:
  /// Throws Error(invalid_argument) for parameters of other types than float32 and float64.
  explicit LocalOptimizer(std::vector<NamedTensor> parameters, const Treat& treat = {});

  /// The norm of all gradients; undefined ones count as 0.
  double gradient_norm() const;
  /// Scales gradients in the next step so that their norm is at most `most`. Returns the norm
  /// before. `norm`: the norm over all ranks, if other ranks have parts of the gradients.
  double clip_gradients(double most, std::optional<double> norm = {});
  /// Leaves parameters without a gradient unchanged, and their numbers of steps, which it counts
  /// for each parameter. Throws Error(invalid_usage) for an optimizer with other states than that
  /// of the first step.
  void step(const parallel::Optimizer& optimizer);
  /// .grad() is undefined from now on.
  void zero_grad();

  /// Makes the states of this optimizer now: else its first step does.
  void prepare(const parallel::Optimizer& optimizer);
  /// Saves the whole state except gradients: calls `write` for each parameter, with its name.
  void save(const WriteState& write) const;
  /// Sets parameters, and the states of `optimizer`, to the values of `read`.
  void load(const parallel::Optimizer& optimizer, const ReadState& read);

 private:
  struct Updated {
    NamedTensor parameter;
    Treatment treatment;
    std::array<Tensor, 2> state{};  // none before its first step
    std::uint64_t steps = 0;
  };

  std::vector<Updated> parameters_;
  std::optional<std::size_t> states_;  // that the optimizer keeps, from its first step on
  double scale_ = 1;
};

}  // namespace tutti::libtorch

// An optimizer of parallel/optimizer for parameters that are ordinary tensors, their gradients in
// .grad(): where each rank has the whole model, or its own part of it. One pass over memory, and
// the same bits as the sharded engine's step.
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
  /// Throws Error(invalid_argument) for parameters other than of float32 and float64.
  explicit LocalOptimizer(std::vector<NamedTensor> parameters, const Treat& treat = {});

  /// Of all gradients; those that are not defined count as 0.
  double gradient_norm() const;
  /// In the step that follows, gradients are scaled so that their norm is at most `most`. Returns
  /// what it was. `norm`: what it is, where other ranks have parts of the gradients.
  double clip_gradients(double most, std::optional<double> norm = {});
  /// Parameters without a gradient stay as they are, as do their steps, which the optimizer counts
  /// for each parameter. Throws Error(invalid_usage) for another optimizer than that of the first
  /// step, in what it keeps.
  void step(const parallel::Optimizer& optimizer);
  /// .grad() is undefined from now on.
  void zero_grad();

  /// All that there is besides gradients: `write` is called for each parameter, by its name.
  void save(const WriteState& write) const;
  /// Parameters, and what `optimizer` keeps of them, become what `read` says.
  void load(const parallel::Optimizer& optimizer, const ReadState& read);

 private:
  struct Updated {
    NamedTensor parameter;
    Treatment treatment;
    std::array<Tensor, 2> state{};  // none before its first step
    std::uint64_t steps = 0;
  };
  void prepare(const parallel::Optimizer& optimizer);

  std::vector<Updated> parameters_;
  std::optional<std::size_t> states_;  // that the optimizer keeps, from its first step on
  double scale_ = 1;
};

}  // namespace tutti::libtorch

// Data parallelism for a libtorch module: every rank has the whole model, and after backward() each
// parameter's .grad() is the average over the ranks of the axis.
//
//     DataParallel ddp(axis, *model);              // all ranks start from rank 0's parameters
//     for (each step) {
//       optimizer.zero_grad();
//       ddp.backward(loss(model->forward(x)));     // x: this rank's part of the batch
//       optimizer.step();
//     }
//
// Gradients lie in the buckets of parallel::DataParallel, which sends them while backward goes on;
// .grad() is a view of them. Linear and the layers of tensor_parallel.h make gradients there.
// Gradients of other modules are copied once, after the hooks of the parameter. If .grad() is
// defined already they are added up, as always in torch. A .grad() that a program keeps also keeps
// the buckets.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "../../parallel/data_parallel/data_parallel.h"
#include "gradient_places.h"
#include "shared_tensors.h"
#include "tensors.h"

namespace tutti::libtorch {

class DataParallel {
 public:
  /// Collective. Parameters, and other tensors of the module, become those of rank 0. Throws
  /// Error(mismatch) on all ranks if these differ in number, type or shape, and names the first.
  /// Throws Error(invalid_argument) for a parameter that is not dense, contiguous and on the CPU
  /// (on the axis's GPU, where it has a TorchGpu), or Error(mismatch) on all ranks if only some
  /// have such a parameter. The axis outlives it; the module's parameters stay the same tensors
  /// meanwhile.
  DataParallel(parallel::Axis& axis, torch::nn::Module& module,
               const parallel::DataParallelPolicy& policy = {});
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Makes the gradients of `loss` (a scalar), and averages them. Throws Error(invalid_usage) for a
  /// parameter that is trained now, and was not when the module was wrapped. A failure on one rank
  /// alone ends the operation on all. Errors of all ranks are those of
  /// parallel::DataParallel::finish(); it says how to go on after them, and after
  /// Error(invalid_usage) for a second backward of the same step.
  void backward(const Tensor& loss);
  /// backward() in two parts: torch's own backward, by whatever call, then the averages.
  void finish();

  /// Whether the module's buffers become those of one rank after each step: the first rank with
  /// data, usually rank 0. BatchNorm and its like change buffers by a rank's own data. True at
  /// first. False saves the copy if nothing changes buffers, and lets each rank keep its own
  /// otherwise.
  void share_buffers(bool shared) { shares_buffers_ = shared; }

  /// While it lives, gradients only add up: for all micro-batches of a step but the last.
  [[nodiscard]] parallel::DataParallel::NoSync no_sync() { return engine_.no_sync(); }
  /// This rank has no more data (policy uneven_inputs). after_step runs after each step of the
  /// others, when the averages are in .grad().
  void join(const std::function<void()>& after_step = {});

  parallel::DataParallel& engine() { return engine_; }

 private:
  Tensor arrived(std::size_t i, const Tensor& gradient);
  GradientPlace place(const Tensor& parameter);
  bool begin(std::size_t i, const Tensor& view);
  Tensor view(std::size_t i) const;
  void show(std::size_t i);
  void end_step();

  parallel::Axis& axis_;
  std::vector<NamedTensor> parameters_;
  const std::vector<NamedTensor> frozen_;
  const SharedTensors buffers_;
  bool shares_buffers_ = true;
  ByParameter<std::size_t> numbers_;
  std::vector<std::uint8_t> begun_;  // by parameter: its memory has something of this backward
  parallel::DataParallel engine_;
  std::vector<GradientArrival> arrivals_;  // by parameter
  std::shared_ptr<const GradientPlaces> places_;
};

}  // namespace tutti::libtorch

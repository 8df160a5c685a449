// A pipeline of torch modules: each rank of the axis computes the stages that the schedule gives
// it, micro-batch by micro-batch; activations and their gradients travel between ranks.
//
//     Pipeline pipeline(axis, schedule, {.shape = {rows, width}, .type = at::kFloat}, functions);
//     for (each step) { pipeline.step(); ... optimizer ... }
//
// Tensors between stages are on the axis's device. parallel/pipeline/execute.h runs the schedule,
// and describes failures: an error names rank, stage and micro-batch, and ends the step on all
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "../../parallel/pipeline/execute.h"
#include "gradient_places.h"
#include "tensors.h"

namespace tutti::libtorch {

class Pipeline {
 public:
  /// The tensor that one stage hands to the next for a micro-batch.
  struct Between {
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
  };
  struct Functions {
    /// Stage `stage` of micro-batch `micro_batch`. `input`: the output of the previous stage;
    /// undefined on the first stage. Returns a tensor as in `Between`. The last stage returns its
    /// loss, a scalar; the step's loss is the sum over its micro-batches.
    std::function<Tensor(int stage, int micro_batch, const Tensor& input)> forward;
    /// Run before and after torch's backward of a stage; `last`: the gradients of its parameters
    /// are complete then, in this step. May be empty.
    std::function<void(int stage, bool last)> before_backward, after_backward;
    /// In schedules that have the backward in two parts: calls make(), which makes the gradients
    /// that a backward has left for later (gradient_places.h). If it is empty, the pipeline calls
    /// make() itself.
    std::function<void(int stage, bool last, const std::function<void()>& make)> backward_weights;
  };
  /// Collective; throws as parallel::pipeline::Executor. In schedules that have the backward in two
  /// parts, Linear and the layers of tensor_parallel.h make the gradients of their weights in the
  /// second part; other modules make theirs together with those of the inputs.
  Pipeline(parallel::Axis& axis, const parallel::pipeline::Schedule& schedule, Between between,
           Functions functions);

  /// One batch. Returns its loss on the rank of the last stage, and 0 on others.
  double step();
  const parallel::pipeline::Executor& executor() const { return executor_; }

 private:
  using In = parallel::pipeline::Stages::In;
  using Out = parallel::pipeline::Stages::Out;
  parallel::pipeline::Stages stages();
  void forward(int stage, int micro_batch, In in, Out out);
  void backward(int stage, int micro_batch, In in, Out out, bool inputs_only);
  void backward_weights(int stage, int micro_batch);
  bool is_last_backward(int stage) { return ++backwards_[stage] == micro_batches_; }
  Tensor received(In in) const;
  void give(const Tensor& made, Out out, int stage) const;

  const parallel::Axis& axis_;
  const Between between_;
  const c10::Device device_;  // of what goes between stages
  const Functions functions_;
  const int micro_batches_;
  // The input and output of a stage and micro-batch, kept from a forward to its backward.
  std::map<std::pair<int, int>, std::pair<Tensor, Tensor>> kept_;
  std::map<std::pair<int, int>, std::vector<LaterGradients::Left>> later_;
  std::map<int, int> backwards_;  // that are complete, in this step, by stage
  double loss_ = 0;
  parallel::pipeline::Executor executor_;
};

}  // namespace tutti::libtorch

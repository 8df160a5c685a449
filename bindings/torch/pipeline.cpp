#include "bindings/torch/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace tutti::libtorch {
namespace {

std::vector<std::size_t> bytes_between(const parallel::pipeline::Schedule& schedule,
                                       const Pipeline::Between& between) {
  std::size_t bytes = c10::elementSize(between.type);
  for (const std::int64_t size : between.shape) bytes *= static_cast<std::size_t>(size);
  return std::vector<std::size_t>(static_cast<std::size_t>(schedule.stages() - 1), bytes);
}

}  // namespace

Pipeline::Pipeline(parallel::Axis& axis, const parallel::pipeline::Schedule& schedule,
                   Between between, Functions functions)
    : between_(std::move(between)),
      functions_(std::move(functions)),
      micro_batches_(schedule.micro_batches),
      executor_(axis, schedule, bytes_between(schedule, between_), stages()) {}

parallel::pipeline::Stages Pipeline::stages() {
  const auto all = [this](int s, int m, In in, Out out) { backward(s, m, in, out); };
  return {.forward = [this](int s, int m, In in, Out out) { forward(s, m, in, out); },
          .backward = all,
          .backward_inputs = all,
          .backward_weights = [](int, int) {}};
}

double Pipeline::step() {
  kept_.clear();
  backwards_.clear();
  loss_ = 0;
  executor_.step();
  return loss_;
}

Tensor Pipeline::received(In in) const {
  return tensor_over(const_cast<std::byte*>(in.data()), between_.shape, between_.type);
}

void Pipeline::give(const Tensor& made, Out out, int stage) const {
  if (made.sizes() != at::IntArrayRef(between_.shape) || made.scalar_type() != between_.type) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("stage {} has made {}, but between stages there are {} [{}]", stage,
                    describe(made), c10::toString(between_.type), fmt::join(between_.shape, ", ")));
  }
  const at::NoGradGuard no_grad;
  tensor_over(out.data(), between_.shape, between_.type).copy_(made);
}

void Pipeline::forward(int stage, int micro_batch, In in, Out out) {
  Tensor input;
  if (!in.empty()) input = received(in).clone().requires_grad_(true);  // the buffer is used again
  const Tensor made = functions_.forward(stage, micro_batch, input);
  if (out.empty()) {
    loss_ += made.item<double>();
  } else {
    give(made, out, stage);
  }
  kept_[{stage, micro_batch}] = {input, made};
}

void Pipeline::backward(int stage, int micro_batch, In in, Out out) {
  const auto [input, made] = kept_.extract({stage, micro_batch}).mapped();
  const bool last = ++backwards_[stage] == micro_batches_;
  if (functions_.before_backward) functions_.before_backward(stage, last);
  made.backward(in.empty() ? Tensor() : received(in));
  if (functions_.after_backward) functions_.after_backward(stage, last);
  if (!out.empty()) give(input.grad(), out, stage);
}

}  // namespace tutti::libtorch

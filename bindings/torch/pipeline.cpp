#include "bindings/torch/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <stdexcept>

#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {
namespace {

std::vector<std::size_t> bytes_between(const parallel::pipeline::Schedule& schedule,
                                       const Pipeline::Between& between) {
  double elements = 1;
  std::size_t bytes = c10::elementSize(between.type);
  for (const std::int64_t size : between.shape) {
    elements *= static_cast<double>(size);
    bytes *= static_cast<std::size_t>(size);
    if (size >= 1 && elements <= parallel::kMostElements) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("between stages there are [{}]: every size has to be 1 or more, and "
                            "their product a number of elements",
                            fmt::join(between.shape, ", ")));
  }
  return std::vector<std::size_t>(static_cast<std::size_t>(schedule.stages() - 1), bytes);
}

/// Where a rank asks for what cannot be, all are refused.
std::vector<std::size_t> agreed_bytes(parallel::Axis& axis,
                                      const parallel::pipeline::Schedule& schedule,
                                      const Pipeline::Between& between) {
  std::vector<std::size_t> result;
  parallel::together(axis, "the pipeline", [&] { result = bytes_between(schedule, between); });
  return result;
}

/// The executor hands on what is thrown, to all ranks.
template <class Body>
void without_backtrace(const Body& body) {
  try {
    body();
  } catch (const c10::Error& e) {
    std::throw_with_nested(std::runtime_error(what_of(e)));
  }
}

}  // namespace

Pipeline::Pipeline(parallel::Axis& axis, const parallel::pipeline::Schedule& schedule,
                   Between between, Functions functions)
    : axis_(axis),
      between_(std::move(between)),
      device_(tensors_of(axis)),
      functions_(std::move(functions)),
      micro_batches_(schedule.micro_batches),
      executor_(axis, schedule, agreed_bytes(axis, schedule, between_), stages()) {}

parallel::pipeline::Stages Pipeline::stages() {
  return {
      .forward = [this](int s, int m, In in,
                        Out out) { without_backtrace([&] { forward(s, m, in, out); }); },
      .backward = [this](int s, int m, In in,
                         Out out) { without_backtrace([&] { backward(s, m, in, out, false); }); },
      .backward_inputs =
          [this](int s, int m, In in, Out out) {
            without_backtrace([&] { backward(s, m, in, out, true); });
          },
      .backward_weights = [this](int s,
                                 int m) { without_backtrace([&] { backward_weights(s, m); }); }};
}

double Pipeline::step() {
  kept_.clear();
  later_.clear();
  backwards_.clear();
  loss_ = 0;
  executor_.step();
  if (axis_.device().is_gpu()) axis_.check_failure();  // or the loss may be of what never came
  return loss_;
}

Tensor Pipeline::received(In in) const {
  return tensor_over(const_cast<std::byte*>(in.data()), between_.shape, between_.type, device_);
}

void Pipeline::give(const Tensor& made, Out out, int stage) const {
  if (!made.defined()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("what stage {} makes does not depend on its input, so there is no "
                            "gradient for the stage before",
                            stage));
  }
  if (made.sizes() != at::IntArrayRef(between_.shape) || made.scalar_type() != between_.type) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("stage {} has made {}, but between stages there are {} [{}]", stage,
                    describe(made), c10::toString(between_.type), fmt::join(between_.shape, ", ")));
  }
  const at::NoGradGuard no_grad;
  tensor_over(out.data(), between_.shape, between_.type, device_).copy_(made);
}

void Pipeline::forward(int stage, int micro_batch, In in, Out out) {
  Tensor input;
  if (!in.empty()) input = received(in).clone().requires_grad_(true);  // the buffer is used again
  const Tensor made = functions_.forward(stage, micro_batch, input);
  if (out.empty()) {
    if (!made.defined() || made.numel() != 1) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the last stage, {}, has made {}, but its loss is one number", stage,
                              describe(made)));
    }
    loss_ += made.item<double>();
  } else {
    give(made, out, stage);
  }
  kept_[{stage, micro_batch}] = {input, made};
}

void Pipeline::backward(int stage, int micro_batch, In in, Out out, bool inputs_only) {
  const auto [input, made] = kept_.extract({stage, micro_batch}).mapped();
  const bool last = !inputs_only && is_last_backward(stage);
  if (functions_.before_backward) functions_.before_backward(stage, last);
  // A copy, as the buffer is used again: gradients of parameters may be views of it.
  const Tensor gradient = in.empty() ? Tensor() : received(in).clone();
  if (inputs_only) {
    const LaterGradients later(later_[{stage, micro_batch}]);
    made.backward(gradient);
  } else {
    made.backward(gradient);
  }
  if (functions_.after_backward) functions_.after_backward(stage, last);
  if (!out.empty()) give(input.grad(), out, stage);
}

void Pipeline::backward_weights(int stage, int micro_batch) {
  const auto later = later_.extract({stage, micro_batch});
  const auto make = [&] { LaterGradients::make_all(later.mapped()); };
  const bool last = is_last_backward(stage);
  functions_.backward_weights ? functions_.backward_weights(stage, last, make) : make();
}

}  // namespace tutti::libtorch

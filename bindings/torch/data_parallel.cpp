#include "bindings/torch/data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {
namespace {

std::vector<parallel::Parameter> declared(const std::vector<NamedTensor>& parameters) {
  std::vector<parallel::Parameter> result;
  for (const NamedTensor& p : parameters) {
    result.push_back({.name = p.name,
                      .shape = {p.tensor.sizes().begin(), p.tensor.sizes().end()},
                      .type = data_type(p.tensor.scalar_type(), p.name)});
  }
  return result;
}

/// What can be shared; where a rank has something else, all are refused.
std::vector<NamedTensor> agreed_parameters(parallel::Axis& axis, const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  parallel::together(axis, "what is data parallel", [&] {
    const c10::Device device = tensors_of(axis);
    result = trained_parameters(module, device);
    for (const NamedTensor& t : other_tensors(module)) {
      if (t.tensor.layout() == at::kStrided && t.tensor.device() == device) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the module's tensor {} is sparse, or not on {}: it cannot become "
                              "that of rank 0",
                              t.name, device.is_cpu() ? "the CPU" : device.str()));
    }
  });
  return result;
}

void share(parallel::Axis& axis, parallel::DataParallel& engine,
           const std::vector<NamedTensor>& parameters, const SharedTensors& others) {
  std::vector<void*> pointers;
  for (const NamedTensor& p : parameters) pointers.push_back(p.tensor.mutable_data_ptr());
  engine.broadcast_parameters(pointers);
  others.agree(axis);
  others.share(axis);
}

}  // namespace

DataParallel::DataParallel(parallel::Axis& axis, torch::nn::Module& module,
                           const parallel::DataParallelPolicy& policy)
    : axis_(axis),
      parameters_(agreed_parameters(axis, module)),
      frozen_(frozen_parameters(module)),
      buffers_(buffers(module)),
      begun_(parameters_.size()),
      engine_(axis, declared(parameters_), policy) {
  const at::NoGradGuard no_grad;
  share(axis, engine_, parameters_, SharedTensors(other_tensors(module)));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    arrivals_.emplace_back(parameters_[i].tensor,
                           [this, i](const Tensor& gradient) { return arrived(i, gradient); });
    numbers_[parameters_[i].tensor.unsafeGetTensorImpl()] = i;
  }
  places_ = std::make_shared<const GradientPlaces>(
      [this](const Tensor& parameter) { return place(parameter); });
  gradients_to(module, places_);
}

Tensor DataParallel::view(std::size_t i) const {
  const Tensor& parameter = parameters_[i].tensor;
  return tensor_over(engine_.kept_gradient(i), parameter.sizes(), parameter.scalar_type(),
                     parameter.device());
}

// The next gradient goes into the view. Whether it is added to what is there: earlier ones of this
// backward, or .grad().
bool DataParallel::begin(std::size_t i, const Tensor& view) {
  if (std::exchange(begun_[i], 1) != 0) return true;
  const Tensor& before = parameters_[i].tensor.grad();
  if (!before.defined()) return false;
  if (before.const_data_ptr() != view.const_data_ptr()) view.copy_(before);
  return true;
}

GradientPlace DataParallel::place(const Tensor& parameter) {
  const auto number = numbers_.find(parameter.unsafeGetTensorImpl());
  if (number == numbers_.end() || engine_.is_ready(number->second)) return {};
  const Tensor memory = view(number->second);
  return {memory, begin(number->second, memory)};
}

// Runs before autograd accumulates the gradient, when all that a backward makes of it is there.
// Autograd takes the result over as .grad(), without a copy, because there is no .grad() yet and
// nobody else has the result.
Tensor DataParallel::arrived(std::size_t i, const Tensor& gradient) {
  if (!gradient.defined() && begun_[i] == 0) return gradient;  // it comes later
  const at::NoGradGuard no_grad;
  if (engine_.is_ready(i)) engine_.ready(i);  // throws, before anything has come of it
  Tensor view = this->view(i);
  if (gradient.defined()) {
    check_gradient(gradient, parameters_[i].name, parameters_[i].tensor.device());
    if (begin(i, view)) {
      view.add_(gradient);
    } else {
      view.copy_(gradient);
    }
  }
  parameters_[i].tensor.mutable_grad().reset();
  if (!LaterGradients::are_wanted()) engine_.ready(i);
  return view;
}

void DataParallel::backward(const Tensor& loss) {
  try {
    loss.backward();
  } catch (const std::exception& e) {
    // The others would wait for gradients that do not come.
    axis_.abort(fmt::format("rank {} failed in its backward: {}", axis_.world_rank(axis_.rank()),
                            what_of(e)));
    throw;
  }
  finish();
}

void DataParallel::finish() {
  try {
    refuse_unfrozen(frozen_);
  } catch (const Error& e) {
    axis_.abort(fmt::format("rank {} cannot go on: {}", axis_.world_rank(axis_.rank()), e.what()));
    throw;
  }
  // Nothing is added to gradients that modules have made later.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (std::exchange(begun_[i], 0) == 0 || engine_.is_ready(i)) continue;
    show(i);
    engine_.ready(i);
  }
  const auto steps = [&] { return engine_.statistics().steps; };
  const auto before = steps();
  (void)engine_.finish();
  // Under no_sync() there are no averages: gradients that have not come yet stay undefined.
  if (steps() != before) end_step();
}

void DataParallel::end_step() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) show(i);
  if (shares_buffers_) buffers_.share(axis_, engine_.first_with_data());
}

void DataParallel::join(const std::function<void()>& after_step) {
  engine_.join([&] {
    end_step();
    if (after_step) after_step();
  });
}

void DataParallel::show(std::size_t i) {
  Tensor& gradient = parameters_[i].tensor.mutable_grad();
  if (gradient.defined() && gradient.const_data_ptr() == engine_.gradient(i)) return;
  gradient = view(i);
}

}  // namespace tutti::libtorch

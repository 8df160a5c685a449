#include "bindings/torch/data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

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
      module_(module),
      parameters_(trained_parameters(module)),
      frozen_(frozen_parameters(module)),
      buffers_(buffers(module)),
      expected_(parameters_.size()),
      engine_(axis, declared(parameters_), policy) {
  const at::NoGradGuard no_grad;
  share(axis, engine_, parameters_, SharedTensors(other_tensors(module)));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(parameters_[i].tensor.register_hook(
        [this, i](const Tensor& gradient) { return arrived(i, gradient); }));
    numbers_[parameters_[i].tensor.unsafeGetTensorImpl()] = i;
  }
  gradients_to(module, [this](const Tensor& parameter) { return place(parameter); });
}

DataParallel::~DataParallel() {
  gradients_to(module_, {});
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    const Tensor& parameter = parameters_[i].tensor;
    parameter.remove_hook(hooks_[i]);
    parameter.mutable_grad().reset();  // it is memory of the engine
  }
}

Tensor DataParallel::view(std::size_t i) const {
  const Tensor& parameter = parameters_[i].tensor;
  return tensor_over(engine_.gradient(i), parameter.sizes(), parameter.scalar_type());
}

// A parameter that is used twice has its gradients added up before they arrive: the second one goes
// elsewhere.
GradientPlace DataParallel::place(const Tensor& parameter) {
  const auto number = numbers_.find(parameter.unsafeGetTensorImpl());
  if (number == numbers_.end()) return {};
  const std::size_t i = number->second;
  if (engine_.is_ready(i) || expected_[i] != 0) return {};
  const Tensor& before = parameter.grad();
  const Tensor memory = view(i);
  const bool adds = before.defined();
  if (adds && before.const_data_ptr() != memory.const_data_ptr()) return {};
  expected_[i] = 1;
  return {memory, adds};
}

// Runs before autograd accumulates the gradient. What it returns is taken over as .grad(), without
// a copy, because there is none and nobody else has it.
Tensor DataParallel::arrived(std::size_t i, const Tensor& gradient) {
  if (!gradient.defined()) return gradient;  // it comes later
  const at::NoGradGuard no_grad;
  check_gradient(gradient, parameters_[i].name);
  if (engine_.is_ready(i)) engine_.ready(i);  // throws, before anything has come of it
  Tensor view = this->view(i);
  Tensor& before = parameters_[i].tensor.mutable_grad();
  const bool was_added = std::exchange(expected_[i], 0) != 0;
  if (!before.defined() || was_added) {
    if (gradient.const_data_ptr() != view.const_data_ptr()) view.copy_(gradient);
  } else {
    if (before.const_data_ptr() != view.const_data_ptr()) view.copy_(before);
    view.add_(gradient);
  }
  before.reset();
  engine_.ready(i);
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
  const auto steps = [&] { return engine_.statistics().steps; };
  const auto before = steps();
  (void)engine_.finish();
  std::ranges::fill(expected_, std::uint8_t{0});
  // Under no_sync() there are no averages: gradients that have not come yet stay undefined.
  if (steps() != before) end_step();
}

void DataParallel::end_step() {
  show_averages();
  if (shares_buffers_) buffers_.share(axis_, engine_.first_with_data());
}

void DataParallel::join(const std::function<void()>& after_step) {
  engine_.join([&] {
    end_step();
    if (after_step) after_step();
  });
}

void DataParallel::show_averages() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && gradient.const_data_ptr() == engine_.gradient(i)) continue;
    gradient = view(i);
  }
}

}  // namespace tutti::libtorch

#include "bindings/torch/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace tutti::libtorch {

LocalOptimizer::LocalOptimizer(std::vector<NamedTensor> parameters, const Treat& treat) {
  for (NamedTensor& p : parameters) {
    if (!p.tensor.device().is_cpu()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("LocalOptimizer works on the CPU, and the parameter {} is on {}: "
                              "take an optimizer of torch's there",
                              p.name, p.tensor.device().str()));
    }
    if (p.tensor.scalar_type() != at::kFloat && p.tensor.scalar_type() != at::kDouble) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the optimizer keeps float32 and float64, but the parameter {} is {}",
                              p.name, describe(p.tensor)));
    }
    const Treatment treatment = treat ? treat(p) : Treatment();
    parameters_.push_back({.parameter = std::move(p), .treatment = treatment});
  }
}

double LocalOptimizer::gradient_norm() const {
  double sum = 0;
  for (const Updated& u : parameters_) {
    const Tensor& gradient = u.parameter.tensor.grad();
    if (!gradient.defined() || !u.treatment.in_norm) continue;
    const Tensor dense = gradient.contiguous();
    sum += parallel::kernels::sum_of_squares(data_type(dense.scalar_type(), u.parameter.name),
                                             static_cast<const std::byte*>(dense.const_data_ptr()),
                                             static_cast<std::size_t>(dense.numel()));
  }
  return std::sqrt(sum);
}

double LocalOptimizer::clip_gradients(double most, std::optional<double> known) {
  if (!(most >= 0)) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("gradients are clipped to a norm of {}", most));
  }
  const double norm = known ? *known : gradient_norm();
  scale_ = norm > most ? most / norm : 1;
  return norm;
}

void LocalOptimizer::prepare(const parallel::Optimizer& optimizer) {
  if (!states_) states_ = optimizer.states();
  if (*states_ == optimizer.states()) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} keeps {} numbers for each parameter, the optimizer before it {}: "
                          "LocalOptimizer keeps to one optimizer",
                          optimizer.name(), optimizer.states(), *states_));
}

void LocalOptimizer::step(const parallel::Optimizer& optimizer) {
  optimizer.check_options();
  prepare(optimizer);
  const at::NoGradGuard no_grad;
  for (Updated& u : parameters_) {
    const Tensor& parameter = u.parameter.tensor;
    if (!parameter.grad().defined()) continue;
    for (std::size_t i = 0; i < *states_; ++i) {
      if (!u.state[i].defined()) u.state[i] = at::zeros_like(parameter);
    }
    const auto state = [&](std::size_t i) {
      return u.state[i].defined() ? u.state[i].mutable_data_ptr() : nullptr;
    };
    const Tensor gradient = parameter.grad().contiguous();
    const DataType type = data_type(parameter.scalar_type(), u.parameter.name);
    optimizer.update({.type = type,
                      .master = parameter.mutable_data_ptr(),
                      .state = {state(0), state(1)},
                      .gradient_type = type,
                      .gradient = gradient.const_data_ptr(),
                      .compute_type = type,
                      .compute = nullptr,
                      .count = static_cast<std::size_t>(parameter.numel()),
                      .gradient_scale = scale_,
                      .decay_scale = u.treatment.weight_decay,
                      .step = ++u.steps});
  }
  scale_ = 1;
}

void LocalOptimizer::save(const WriteState& write) const {
  const at::NoGradGuard no_grad;
  for (const Updated& u : parameters_) {
    const Tensor value = u.parameter.tensor.detach();
    ParameterState all{.name = u.parameter.name, .value = value, .state = {}, .steps = u.steps};
    for (std::size_t i = 0; i < states_.value_or(0); ++i) {
      all.state.push_back(u.state[i].defined() ? u.state[i] : at::zeros_like(value));
    }
    write(all);
  }
}

void LocalOptimizer::load(const parallel::Optimizer& optimizer, const ReadState& read) {
  const at::NoGradGuard no_grad;
  prepare(optimizer);
  for (Updated& u : parameters_) {
    const Tensor& parameter = u.parameter.tensor;
    ParameterState all =
        read_state(read, u.parameter.name, parameter.sizes(), parameter.scalar_type(), *states_);
    parameter.copy_(all.value);
    for (std::size_t i = 0; i < *states_; ++i) u.state[i] = all.state[i].clone();
    u.steps = all.steps;
  }
}

void LocalOptimizer::zero_grad() {
  for (Updated& u : parameters_) u.parameter.tensor.mutable_grad().reset();
}

}  // namespace tutti::libtorch

#include "bindings/torch/data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <string>

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

void share(parallel::Axis& axis, parallel::DataParallel& engine,
           const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& others) {
  std::vector<void*> pointers;
  for (const NamedTensor& p : parameters) pointers.push_back(p.tensor.mutable_data_ptr());
  engine.broadcast_parameters(pointers);

  std::vector<std::string> lines;
  std::vector<std::span<std::byte>> memory;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const NamedTensor& t : others) {
    lines.push_back(t.name + ": " + describe(t.tensor));
    const Tensor dense = t.tensor.contiguous();
    if (!dense.is_same(t.tensor)) copies.emplace_back(t.tensor, dense);
    memory.emplace_back(static_cast<std::byte*>(dense.mutable_data_ptr()), dense.nbytes());
  }
  parallel::agree(axis, "the module's buffers", lines);
  engine.broadcast_buffers(memory);
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace

DataParallel::DataParallel(parallel::Axis& axis, torch::nn::Module& module,
                           const parallel::DataParallelPolicy& policy)
    : axis_(axis),
      parameters_(trained_parameters(module)),
      engine_(axis, declared(parameters_), policy) {
  const at::NoGradGuard no_grad;
  share(axis, engine_, parameters_, other_tensors(module));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(parameters_[i].tensor.register_hook(
        [this, i](const Tensor& gradient) { return arrived(i, gradient); }));
  }
}

DataParallel::~DataParallel() {
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

// Runs before autograd accumulates the gradient. What it returns is taken over as .grad(), without
// a copy, because there is none and nobody else has it.
Tensor DataParallel::arrived(std::size_t i, const Tensor& gradient) {
  const at::NoGradGuard no_grad;
  check_gradient(gradient, parameters_[i].name);
  Tensor view = this->view(i);
  Tensor& before = parameters_[i].tensor.mutable_grad();
  if (!before.defined()) {
    view.copy_(gradient);
  } else {
    if (before.const_data_ptr() != view.const_data_ptr()) view.copy_(before);
    view.add_(gradient);
    before.reset();
  }
  engine_.ready(i);
  return view;
}

void DataParallel::backward(const Tensor& loss) {
  try {
    loss.backward();
  } catch (const std::exception& e) {
    // The others would wait for gradients that do not come.
    axis_.abort(fmt::format("rank {} failed in its backward: {}", axis_.rank(), e.what()));
    throw;
  }
  finish();
}

void DataParallel::finish() {
  const auto steps = [&] { return engine_.statistics().steps; };
  const auto before = steps();
  (void)engine_.finish();
  // Under no_sync() there are no averages: gradients that have not come yet stay undefined.
  if (steps() != before) show_averages();
}

void DataParallel::join(const std::function<void()>& after_step) {
  engine_.join([&] {
    show_averages();
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

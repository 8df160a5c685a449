#include "bindings/torch/gradient_places.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tutti::libtorch {
namespace {

namespace autograd = torch::autograd;

// A backward on CPUs runs its nodes on the thread that called it.
thread_local std::vector<LaterGradients::Left>* list_of_this_thread = nullptr;

/// Whether anything but the sum of its gradients matters of a parameter: a hook sees each, and may
/// change it.
bool has_hooks(const Tensor& parameter) {
  if (!parameter.defined() || autograd::impl::get_autograd_meta(parameter) == nullptr) return false;
  return !autograd::impl::hooks(parameter).empty() ||
         autograd::impl::post_acc_grad_hooks(parameter) != nullptr;
}

/// Gradients of some tensors alone, as torch::autograd::grad() asks for: only the caller knows
/// their purpose.
bool is_of_some_tensors() {
  const auto* const of = autograd::get_current_graph_task_exec_info();
  return of != nullptr && !of->empty();
}

}  // namespace

GradientPlace GradientTaker::place_of(const Tensor& parameter) const {
  const auto places = places_.lock();
  if (!places || at::GradMode::is_enabled() || has_hooks(parameter) || is_of_some_tensors()) {
    return {};
  }
  return (*places)(parameter);
}

void gradients_to(torch::nn::Module& module, const std::shared_ptr<const GradientPlaces>& places) {
  module.apply([&](torch::nn::Module& m) {
    if (auto* const maker = dynamic_cast<MakesGradients*>(&m)) maker->gradient_taker()->ask(places);
  });
}

struct GradientArrival::Hook final : autograd::FunctionPreHook {
  explicit Hook(std::shared_ptr<Take> t) : take(std::move(t)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (!*take) return gradients;
    return {(*take)(gradients.at(0))};
  }
  const std::shared_ptr<Take> take;
};

GradientArrival::GradientArrival(const Tensor& parameter, Take take)
    : take_(std::make_shared<Take>(std::move(take))) {
  auto accumulator = autograd::impl::grad_accumulator(parameter);
  accumulator->add_pre_hook(std::make_unique<Hook>(take_));
  accumulator_ = std::make_shared<decltype(accumulator)>(std::move(accumulator));
}

// The hook stays, as a graph may have the accumulator.
GradientArrival::~GradientArrival() {
  if (take_) *take_ = nullptr;
}

LaterGradients::LaterGradients(std::vector<Left>& later)
    : before_(std::exchange(list_of_this_thread, &later)) {}
LaterGradients::~LaterGradients() { list_of_this_thread = before_; }
bool LaterGradients::are_wanted() { return list_of_this_thread != nullptr; }

bool LaterGradients::leave(std::vector<Tensor> parameters, Make make) {
  if (!are_wanted() || std::ranges::any_of(parameters, has_hooks)) return false;
  list_of_this_thread->push_back({std::move(parameters), std::move(make)});
  return true;
}

void LaterGradients::make_all(const std::vector<Left>& later) {
  std::vector<Tensor> parameters, sums;
  for (const Left& left : later) {
    const at::NoGradGuard no_grad;
    const std::vector<Tensor> gradients = left.make();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const auto same = std::ranges::find_if(
          parameters, [&](const Tensor& p) { return p.is_same(left.parameters[i]); });
      if (same == parameters.end()) {
        parameters.push_back(left.parameters[i]);
        sums.push_back(gradients[i]);
      } else {
        sums[static_cast<std::size_t>(same - parameters.begin())] += gradients[i];
      }
    }
  }
  if (!parameters.empty()) autograd::backward(parameters, sums);
}

}  // namespace tutti::libtorch

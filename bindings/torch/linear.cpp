#include "bindings/torch/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>
#include <utility>

namespace tutti::libtorch {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// What backward needs of a layer, which may be gone then.
struct LinearParts final : torch::CustomClassHolder {
  LinearParts(Tensor w, Tensor b, std::shared_ptr<GradientTaker> t)
      : weight(std::move(w)), bias(std::move(b)), taker(std::move(t)) {}
  Tensor gradient_of_weight(const Tensor& outputs, const Tensor& inputs) const {
    const auto [memory, adds] = taker->place_of(weight);
    if (!memory.defined()) return outputs.t().mm(inputs);
    Tensor to = memory;
    adds ? at::addmm_out(to, to, outputs.t(), inputs) : at::mm_out(to, outputs.t(), inputs);
    return {};
  }
  Tensor gradient_of_bias(const Tensor& outputs) const {
    const auto [memory, adds] = taker->place_of(bias);
    if (!memory.defined()) return outputs.sum(0);
    Tensor to = memory;
    adds ? to.add_(outputs.sum(0)) : at::sum_out(to, outputs, 0);
    return {};
  }
  const Tensor weight, bias;
  const std::shared_ptr<GradientTaker> taker;
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias,
                        const std::shared_ptr<GradientTaker>& taker) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["parts"] = c10::IValue::make_capsule(
        c10::make_intrusive<LinearParts>(weight, bias.value_or(Tensor()), taker));
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = ctx->get_saved_variables();
    const auto parts =
        c10::static_intrusive_pointer_cast<LinearParts>(ctx->saved_data["parts"].toCapsule());
    const Tensor& x = kept[0];
    const Tensor& dy = gradients[0];
    const Tensor inputs = x.reshape({-1, x.size(-1)}), outputs = dy.reshape({-1, dy.size(-1)});
    const bool of_weight = ctx->needs_input_grad(1);
    const bool of_bias = parts->bias.defined() && ctx->needs_input_grad(2);
    Tensor dx;
    if (ctx->needs_input_grad(0)) dx = outputs.mm(kept[1]).view(x.sizes());
    const LaterGradients::Make make = [parts, inputs, outputs, of_weight, of_bias] {
      return variable_list{of_weight ? parts->gradient_of_weight(outputs, inputs) : Tensor(),
                           of_bias ? parts->gradient_of_bias(outputs) : Tensor()};
    };
    if (LaterGradients::leave({parts->weight, parts->bias}, make)) return {dx, {}, {}, {}};
    const variable_list made = make();
    return {dx, made[0], made[1], Tensor()};
  }
};

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, at::ScalarType type, bool has_bias) {
  const at::NoGradGuard no_grad;
  const double most = 1 / std::sqrt(static_cast<double>(in));
  const auto uniform = [&](at::IntArrayRef sizes) {
    return at::empty(sizes, type).uniform_(-most, most);
  };
  weight = register_parameter("weight", uniform({out, in}));
  if (has_bias) bias = register_parameter("bias", uniform({out}));
}

Tensor Linear::forward(const Tensor& x) {
  check_is_here(weight, "a linear layer");
  // Autograd knows then in which types gradients are made; they are copied.
  if (at::autocast::is_autocast_enabled(x.device().type())) return at::linear(x, weight, bias);
  const auto has_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(x, weight, has_bias, gradient_taker());
}

}  // namespace tutti::libtorch

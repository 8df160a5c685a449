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

namespace tutti::libtorch {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, Linear* m) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["module"] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(m));
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = ctx->get_saved_variables();
    const auto& m = *reinterpret_cast<const Linear*>(
        static_cast<std::uintptr_t>(ctx->saved_data["module"].toInt()));
    const Tensor& x = kept[0];
    const Tensor& weight = kept[1];
    const Tensor& dy = gradients[0];
    const Tensor inputs = x.reshape({-1, x.size(-1)}), outputs = dy.reshape({-1, dy.size(-1)});
    const bool of_weight = ctx->needs_input_grad(1);
    const bool of_bias = m.bias.defined() && ctx->needs_input_grad(2);
    Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = outputs.mm(weight).view(x.sizes());
    if (auto* const later = LaterGradients::list(); later != nullptr) {
      later->push_back([&m, inputs, outputs, of_weight, of_bias] {
        const at::NoGradGuard no_grad;
        if (of_weight) LaterGradients::give(m.weight, weights(outputs.t(), inputs, m));
        if (of_bias) LaterGradients::give(m.bias, biases(outputs, m));
      });
    } else {
      if (of_weight) dweight = weights(outputs.t(), inputs, m);
      if (of_bias) dbias = biases(outputs, m);
    }
    return {dx, dweight, dbias, Tensor()};
  }

 private:
  // Where gradients are differentiated again they are torch's own.
  static GradientPlace place(const Linear& m, const Tensor& parameter) {
    return at::GradMode::is_enabled() ? GradientPlace{} : m.place_of(parameter);
  }
  static Tensor weights(const Tensor& outputs, const Tensor& inputs, const Linear& m) {
    auto [memory, adds] = place(m, m.weight);
    if (!memory.defined()) return outputs.mm(inputs);
    return adds ? at::addmm_out(memory, memory, outputs, inputs)
                : at::mm_out(memory, outputs, inputs);
  }
  static Tensor biases(const Tensor& outputs, const Linear& m) {
    auto [memory, adds] = place(m, m.bias);
    if (!memory.defined()) return outputs.sum(0);
    return adds ? memory.add_(outputs.sum(0)) : at::sum_out(memory, outputs, 0);
  }
};

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
  if (at::autocast::is_autocast_enabled(at::kCPU)) return at::linear(x, weight, bias);
  return LinearFunction::apply(x, weight, bias, this);
}

}  // namespace tutti::libtorch

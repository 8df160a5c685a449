#include "bindings/torch/experts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {

namespace engines = parallel::expert;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct FeedForward final : torch::nn::Module {
  FeedForward(std::int64_t width, std::int64_t hidden, at::ScalarType type)
      : up(register_module("up", std::make_shared<Linear>(width, hidden, type))),
        down(register_module("down", std::make_shared<Linear>(hidden, width, type))) {}
  Tensor forward(const Tensor& x) const { return down->forward(at::silu(up->forward(x))); }
  const std::shared_ptr<Linear> up, down;
};

}  // namespace

MakeExpert feed_forward(std::int64_t width, std::int64_t hidden, at::ScalarType type) {
  return [=](std::int64_t) {
    const auto module = std::make_shared<FeedForward>(width, hidden, type);
    return Expert{module, [module](const Tensor& x) { return module->forward(x); }};
  };
}

struct MixtureOfExperts::Parts {
  Parts(parallel::Axis& axis, const engines::ExpertShape& s, const MixtureOptions& o)
      : shape(s),
        device(tensors_of(axis)),
        options(o),
        balance_axis(o.balance_axis == nullptr ? axis : *o.balance_axis),
        engine(axis, s, o.engine),
        router(s.name, {.experts = s.experts, .top_k = s.top_k, .renormalizes = o.renormalizes}) {}
  Tensor rows(const void* memory, std::size_t count) const {
    return tensor_over(const_cast<void*>(memory),
                       {static_cast<std::int64_t>(count), static_cast<std::int64_t>(shape.width)},
                       scalar_type(shape.type), device);
  }
  Tensor run(std::size_t expert, const Tensor& x) const {
    Tensor y = experts[expert].forward(x);
    if (y.defined() && y.sizes() == x.sizes() && y.scalar_type() == x.scalar_type()) return y;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("experts '{}': expert {} has made {} of {}", shape.name,
                            engine.first_expert() + expert, describe(y), describe(x)));
  }

  const engines::ExpertShape shape;
  const c10::Device device;
  const MixtureOptions options;
  parallel::Axis& balance_axis;
  engines::ExpertParallel engine;
  const engines::Router router;
  std::vector<Expert> experts;  // of this rank
  // Of the last forward.
  double balance_loss = 0;
  std::vector<std::size_t> received;
  std::size_t dropped = 0;
};

/// What the backward needs of a forward.
struct MixtureOfExperts::Kept final : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<Parts> p)
      : parts(std::move(p)),
        journey(std::make_shared<Journey>(parts)),
        runs(parts->experts.size()) {}

  /// The rows, which gradients that are left for later (gradient_places.h) need even longer.
  struct Journey {
    explicit Journey(std::shared_ptr<Parts> p) : parts(std::move(p)) {}
    const std::shared_ptr<Parts> parts;  // outlives `saved`
    engines::Saved saved;
  };

  /// An expert's own graph. Its input is the engine's memory.
  struct Run {
    Tensor x, y;
  };
  void forward(std::size_t expert, const void* rows, std::size_t count, void* results, bool graph) {
    const at::AutoGradMode grad(graph);
    const std::shared_ptr<void> memory(journey, const_cast<void*>(rows));
    const Tensor x = tensor_over(memory, parts->rows(rows, count).sizes(),
                                 scalar_type(parts->shape.type), parts->device)
                         .requires_grad_(graph);
    const Tensor y = parts->run(expert, x);
    const at::NoGradGuard no_grad;
    parts->rows(results, count).copy_(y);
    if (graph) runs[expert] = {x, y};
  }
  /// The expert's parameters get gradients as in any backward: they arrive at engines of the data
  /// ranks now. Scaled on their way through the expert, as these expect a part of a mean.
  void backward(std::size_t expert, const void* dresults, std::size_t count, void* drows) {
    const Run run = std::exchange(runs[expert], {});
    if (!run.y.defined()) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("experts '{}': a second backward of one forward", parts->shape.name));
    }
    const double scale = parts->engine.gradient_scale();
    torch::autograd::backward({run.y}, {parts->rows(dresults, count) * scale});
    const at::NoGradGuard no_grad;
    Tensor to = parts->rows(drows, count);
    at::mul_out(to, run.x.grad(), at::scalar_tensor(1 / scale, to.options()));
  }
  /// Engines wait for gradients of all parameters.
  void backward_of_no_rows(std::size_t expert) const {
    const at::AutoGradMode grad(true);
    const auto width = static_cast<std::int64_t>(parts->shape.width);
    const at::TensorOptions options(scalar_type(parts->shape.type));
    const Tensor x = at::empty({0, width}, options.device(parts->device)).requires_grad_();
    const Tensor y = parts->run(expert, x);
    torch::autograd::backward({y}, {at::empty_like(y)});
  }

  const std::shared_ptr<Parts> parts;
  const std::shared_ptr<Journey> journey;
  engines::Routed routed;
  engines::Balance balance;
  std::vector<Run> runs;  // by expert
};

struct MixtureFunction : torch::autograd::Function<MixtureFunction> {
  using Kept = MixtureOfExperts::Kept;

  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& logits,
                        const std::shared_ptr<MixtureOfExperts::Parts>& parts, bool graph) {
    const auto kept = c10::make_intrusive<Kept>(parts);
    const Tensor here = logits.cpu();
    parts->router.forward(here.const_data_ptr(), static_cast<std::size_t>(x.size(0)),
                          parts->shape.type, kept->routed);
    if (parts->options.balance != 0) {
      kept->balance = parts->router.balance(parts->balance_axis, kept->routed);
      parts->balance_loss = kept->balance.loss();
    }
    const Tensor y = at::empty_like(x);
    parts->engine.forward(
        x.const_data_ptr(), kept->routed,
        [&](std::size_t expert, const void* rows, std::size_t count, void* results) {
          kept->forward(expert, rows, count, results, graph);
        },
        y.mutable_data_ptr(), kept->journey->saved);
    parts->received.assign(kept->journey->saved.received().begin(),
                           kept->journey->saved.received().end());
    parts->dropped = kept->journey->saved.dropped();
    if (graph) ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const auto& parts = *kept->parts;
    const Tensor dy = gradients[0].contiguous(), dx = at::empty_like(dy);
    std::vector<double> dweights(kept->routed.weights.size());
    kept->parts->engine.backward(
        dy.const_data_ptr(),
        [&](std::size_t expert, const void* /*rows*/, const void* dresults, std::size_t count,
            void* drows) { kept->backward(expert, dresults, count, drows); },
        kept->journey->saved, dx.mutable_data_ptr(), dweights);
    for (std::size_t e = 0; e < parts.experts.size(); ++e) {
      if (kept->journey->saved.received()[e] == 0) kept->backward_of_no_rows(e);
    }
    const Tensor dlogits = at::empty({dy.size(0), static_cast<std::int64_t>(parts.shape.experts)},
                                     dy.options().device(c10::kCPU));
    // The loss of the balance is the same on its ranks. Each of them has a part of the gradient.
    const bool balances = parts.options.balance != 0;
    parts.router.backward(
        kept->routed, dweights,
        {balances ? &kept->balance : nullptr, parts.options.balance * parts.balance_axis.size()},
        dlogits.mutable_data_ptr(), parts.shape.type);
    return {dx, dlogits.to(parts.device), Tensor(), Tensor()};
  }
};

MixtureOfExperts::MixtureOfExperts(parallel::Axis& axis, const engines::ExpertShape& shape,
                                   const MakeExpert& make, const MixtureOptions& options)
    : Module(shape.name),
      router(std::make_shared<Linear>(static_cast<std::int64_t>(shape.width),
                                      static_cast<std::int64_t>(shape.experts),
                                      scalar_type(shape.type), false)),
      experts(std::make_shared<torch::nn::Module>("experts")),
      parts_(std::make_shared<Parts>(axis, shape, options)) {
  register_module("router", router);
  parallel::together(axis, "experts '" + shape.name + "'", [&] {
    const std::size_t first = parts_->engine.first_expert(), own = parts_->engine.local_experts();
    for (std::size_t e = 0; e < shape.experts; ++e) {
      Expert made = make(static_cast<std::int64_t>(e));
      if (e < first || e >= first + own) continue;
      experts->register_module(std::to_string(e), made.module);
      parts_->experts.push_back(std::move(made));
    }
  });
}

Tensor MixtureOfExperts::forward(const Tensor& x) {
  const engines::ExpertShape& s = parts_->shape;
  const auto width = static_cast<std::int64_t>(s.width);
  if (!x.defined() || x.dim() == 0 || x.size(-1) != width ||
      x.scalar_type() != scalar_type(s.type) || x.device() != parts_->device) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("experts '{}' take {} [..., {}], on {}, not {}", s.name,
                            tutti::name(s.type), width, describe(parts_->device), describe(x)));
  }
  const Tensor rows = x.reshape({-1, width}).contiguous();
  return MixtureFunction::apply(rows, router->forward(rows).contiguous(), parts_,
                                at::GradMode::is_enabled())
      .view(x.sizes());
}

double MixtureOfExperts::balance_loss() const { return parts_->balance_loss; }
std::span<const std::size_t> MixtureOfExperts::received() const { return parts_->received; }
std::size_t MixtureOfExperts::dropped() const { return parts_->dropped; }

}  // namespace tutti::libtorch

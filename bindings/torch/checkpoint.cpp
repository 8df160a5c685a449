#include "bindings/torch/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <utility>

namespace tutti::libtorch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The state of torch's random numbers on CPUs.
class RandomState {
 public:
  RandomState() {
    const std::scoped_lock lock(generator().mutex());
    state_ = generator().get_state();
  }
  void restore() const {
    const std::scoped_lock lock(generator().mutex());
    generator().set_state(state_);
  }

 private:
  static at::Generator& generator() {
    static at::Generator of_cpus = at::globalContext().defaultGenerator(at::kCPU);
    return of_cpus;
  }
  at::Tensor state_;
};

/// Whether torch computes in narrower types than tensors have, on CPUs, and in which.
class Autocast {
 public:
  Autocast()
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        type_(at::autocast::get_autocast_dtype(at::kCPU)),
        keeps_(at::autocast::is_autocast_cache_enabled()) {}
  /// Here and now. Narrowed parameters are not kept for later: those of the forward have no graph.
  void enter() const { set(enabled_, type_, false); }
  void restore() const { set(enabled_, type_, keeps_); }

 private:
  static void set(bool enabled, at::ScalarType type, bool keeps) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_cache_enabled(keeps);
  }
  bool enabled_;
  at::ScalarType type_;
  bool keeps_;
};

/// Calls the body as it was called, or is, in the forward.
at::Tensor call(const Layer& body, const at::Tensor& input, const Autocast& of_forward) {
  struct Restored {
    ~Restored() { before.restore(); }
    const Autocast before;
  } const restored;
  of_forward.enter();
  return body(input);
}

/// Everything but the input that backward needs.
struct Kept final : torch::CustomClassHolder {
  explicit Kept(Layer b) : body(std::move(b)) {}
  Layer body;
  RandomState random;
  Autocast autocast;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  // `needed` makes autograd call backward() where only parameters need gradients.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& needed,
                            const Layer* body) {
    (void)needed;
    ctx->save_for_backward({input});
    const auto kept = c10::make_intrusive<Kept>(*body);
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return call(*body, input, kept->autocast);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const at::Tensor saved = ctx->get_saved_variables()[0];
    at::Tensor input = saved.detach();
    input.requires_grad_(saved.requires_grad());
    at::Tensor output;
    {
      const at::AutoGradMode grad(true);
      const RandomState now;
      kept->random.restore();
      output = call(kept->body, input, kept->autocast);
      now.restore();
    }
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpoint(const Layer& body, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return body(input);
  const at::Tensor needed = at::empty({0}, input.options().dtype(at::kFloat)).requires_grad_(true);
  return Checkpoint::apply(input, needed, &body);
}

}  // namespace tutti::libtorch

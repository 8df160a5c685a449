#include "bindings/torch/fully_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "bindings/torch/declare_units.h"
#include "bindings/torch/fully_shard_unit.h"
#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {

using parallel::ParameterId;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Nodes in the graph: backward passes the first when it comes to the unit, the second when it
/// leaves it. Autograd runs nodes in the reverse order of their making, as far as they are ready,
/// so all gradients of the unit's parameters are there before the second.
struct ShardedEvents {
  using State = FullyShard::UnitState;

  struct Output : torch::autograd::Function<Output> {
    static Tensor forward(AutogradContext* ctx, const Tensor& output, FullyShard* self, State* u) {
      save(ctx, self, u);
      return output.view_as(output);
    }
    static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
      const auto [self, u] = saved(ctx);
      self->enter_backward(*u);
      return {gradients[0], Tensor(), Tensor()};
    }
  };
  struct Input : torch::autograd::Function<Input> {
    static Tensor forward(AutogradContext* ctx, const Tensor& input, FullyShard* self, State* u) {
      save(ctx, self, u);
      return input.view_as(input);
    }
    static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
      const auto [self, u] = saved(ctx);
      self->leave_backward(*u);
      return {gradients[0], Tensor(), Tensor()};
    }
  };

  static void save(AutogradContext* ctx, FullyShard* self, State* u) {
    ctx->saved_data["shards"] = c10::IValue::make_capsule(self->alive_);
    ctx->saved_data["unit"] = static_cast<std::int64_t>(u->number);
  }
  static std::pair<FullyShard*, State*> saved(AutogradContext* ctx) {
    const auto unit = static_cast<std::size_t>(ctx->saved_data["unit"].toInt());
    const auto alive = c10::static_intrusive_pointer_cast<FullyShard::Alive>(
        ctx->saved_data["shards"].toCapsule());
    if (alive->self == nullptr) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("a backward of unit {}, whose FullyShard is no more", unit));
    }
    return {alive->self, alive->self->units_[unit].get()};
  }
};

FullyShard::FullyShard(const parallel::ShardedAxes& axes, const std::vector<Unit>& units,
                       const parallel::Policy& policy, const Treat& treat)
    : FullyShard(axes, nullptr, units, policy, treat) {}

FullyShard::FullyShard(const parallel::ShardedAxes& axes, const torch::nn::Module& model,
                       const std::vector<Unit>& units, const parallel::Policy& policy,
                       const Treat& treat)
    : FullyShard(axes, &model, units, policy, treat) {}

FullyShard::FullyShard(const parallel::ShardedAxes& axes, const torch::nn::Module* model,
                       const std::vector<Unit>& units, const parallel::Policy& policy,
                       const Treat& treat)
    : axes_(axes), alive_(c10::make_intrusive<Alive>(this)) {
  std::vector<parallel::Unit> declared;
  const auto declare = [&] {
    device_ = tensors_of(*axes.shard);
    std::vector<Tensor> taken;
    for (const Unit& unit : units) {
      std::vector<NamedTensor> own = parameters_of_unit(unit, policy, taken, device_);
      declared.push_back(declared_unit(unit, own, treat));
      units_.push_back(std::make_unique<UnitState>(units_.size(), unit, std::move(own)));
    }
    if (model != nullptr) refuse_trained_in_no_unit(*model, taken, device_);
  };
  if (axes.shard != nullptr) {
    parallel::Agreement ranks(*axes.shard, axes.replicate);
    parallel::together(ranks, "what is sharded", declare);
  }
  engine_ = std::make_unique<parallel::ShardedDataParallel>(std::move(declared), policy, axes);

  places_ = std::make_shared<const GradientPlaces>(
      [this](const Tensor& parameter) { return place(parameter); });
  const at::NoGradGuard no_grad;
  for (auto& u : units_) {
    for (std::size_t p = 0; p < u->parameters.size(); ++p) {
      const Tensor values = u->parameters[p].tensor.to(scalar_type(policy.precision.master));
      engine_->load({u->number, p}, values.const_data_ptr());
      ids_[u->parameters[p].tensor.unsafeGetTensorImpl()] = {u->number, p};
    }
    u->make_views(engine_->layout(u->number), scalar_type(policy.precision.compute), device_,
                  [this, &state = *u](std::size_t p, const Tensor& gradient) {
                    return arrived(state, p, gradient);
                  });
    gradients_to(*units[u->number].module, places_);
  }
  frozen_ = model != nullptr ? frozen_parameters(*model) : of_units(units, frozen_parameters);
  buffers_ = SharedTensors(model != nullptr ? buffers(*model) : of_units(units, buffers));
  buffers_.agree(*axes_.shard);
  // They stay the tensors that they were: their modules have them as members, too.
  for (const NamedTensor& t : buffers_.tensors()) {
    if (!policy.precision.buffer || !at::isFloatingType(t.tensor.scalar_type())) continue;
    t.tensor.set_data(t.tensor.to(scalar_type(*policy.precision.buffer)));
  }
  engine_->share_parameters();
}

void FullyShard::enter_forward(UnitState& u) {
  refuse_replaced(u);
  engine_->before_forward(u.number);
  if (!u.parameters.empty()) u.show(engine_->parameter({u.number, 0}));
}

void FullyShard::leave_forward(UnitState& u) {
  engine_->after_forward(u.number);
  u.hide();
}

void FullyShard::enter_backward(UnitState& u) {
  // Used twice, with an input that needs no gradient: its gradients come once, with the last.
  if (u.backward) return;
  const bool begins = engine_->before_backward(u.number, parallel::NewGradients::anything);
  for (auto& arrival : u.arrivals) arrival.in_buffer = arrival.in_buffer && !begins;
  if (!u.parameters.empty()) u.show(engine_->parameter({u.number, 0}));
  u.backward = u.had_backward = true;
}

void FullyShard::leave_backward(UnitState& u) {
  if (!u.backward) return;
  u.backward = false;
  u.forget_gradients();
  u.hide();
  for (std::size_t p = 0; p < u.arrivals.size(); ++p) {
    if (std::exchange(u.arrivals[p].in_buffer, true)) continue;
    const parallel::UnitParameter& missing = engine_->unit(u.number).parameters[p];
    const std::size_t element = size_of(engine_->policy().precision.gradient);
    if (missing.count > 0) {
      engine_->device().zero(engine_->gradient({u.number, p}), missing.count * element);
    }
  }
  engine_->after_backward(u.number);
}

Tensor FullyShard::forward(std::size_t unit, const Layer& body, const Tensor& input) {
  refuse_restored("forward()");
  if (unit >= units_.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("FullyShard::forward: unit {} of {}", unit, units_.size()));
  }
  UnitState& u = *units_[unit];
  enter_forward(u);
  const bool graph = at::GradMode::is_enabled();
  Tensor output;
  try {
    output =
        body(graph && input.requires_grad() ? ShardedEvents::Input::apply(input, this, &u) : input);
  } catch (const std::exception& e) {
    // The others would wait for this rank to go on.
    abort(fmt::format("failed in the forward of unit '{}': {}", u.name, what_of(e)));
    throw;
  }
  leave_forward(u);
  return graph ? ShardedEvents::Output::apply(output, this, &u) : output;
}

// Where the engine adds gradients up in another type, they arrive by autograd.
GradientPlace FullyShard::place(const Tensor& parameter) {
  const auto id = ids_.find(parameter.unsafeGetTensorImpl());
  if (id == ids_.end()) return {};
  UnitState& u = *units_[id->second.unit];
  const parallel::Precision& types = engine_->policy().precision;
  if (!u.backward || types.gradient != types.compute) return {};
  UnitState::Arrivals& arrival = u.arrivals[id->second.parameter];
  arrival.ever = true;
  return {tensor_over(engine_->gradient(id->second), parameter.sizes(), scalar_type(types.gradient),
                      device_),
          std::exchange(arrival.in_buffer, true)};
}

// Runs before autograd accumulates the gradient: that is done here, into the engine's memory. What
// is returned is taken over as .grad(), without a copy, and is forgotten when the unit is left.
Tensor FullyShard::arrived(UnitState& u, std::size_t p, const Tensor& gradient) {
  if (!gradient.defined()) return gradient;  // it is there already, or comes later
  const at::NoGradGuard no_grad;
  const NamedTensor& parameter = u.parameters[p];
  check_gradient(gradient, parameter.name, device_);
  if (!u.backward) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("a gradient of the parameter {} of unit '{}' came outside of the "
                            "unit's backward: it was used outside of FullyShard::forward() of "
                            "its unit",
                            parameter.name, u.name));
  }
  void* const memory = engine_->gradient({u.number, p});
  const Tensor sum = tensor_over(memory, parameter.tensor.sizes(),
                                 scalar_type(engine_->policy().precision.gradient), device_);
  UnitState::Arrivals& arrival = u.arrivals[p];
  arrival.ever = true;
  if (std::exchange(arrival.in_buffer, true)) {
    sum.add_(gradient);
  } else {
    sum.copy_(gradient);
  }
  parameter.tensor.mutable_grad().reset();
  return tensor_over(memory, parameter.tensor.sizes(), parameter.tensor.scalar_type(), device_);
}

void FullyShard::backward(const Tensor& loss) {
  try {
    loss.backward();
  } catch (const std::exception& e) {
    // The others would wait for gradients that do not come.
    abort(fmt::format("failed in its backward: {}", what_of(e)));
    throw;
  }
  finish();
}

void FullyShard::abort(const std::string& why) {
  const std::string said =
      fmt::format("rank {} {}", axes_.shard->world_rank(axes_.shard->rank()), why);
  for (parallel::Axis* axis : {axes_.shard, axes_.replicate, axes_.group}) {
    if (axis != nullptr) axis->abort(said);
  }
}

void FullyShard::or_abort(const std::string& doing, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    abort(fmt::format("{}: {}", doing, what_of(e)));
    throw;
  }
}

void FullyShard::make_later(const std::vector<std::size_t>& units,
                            const std::function<void()>& make) {
  for (const std::size_t u : units) enter_backward(*units_.at(u));
  make();
  for (const std::size_t u : units) leave_backward(*units_.at(u));
}

void FullyShard::end_backward() {
  // A unit has no node at its end if its input needs no gradient.
  for (auto u = units_.rbegin(); u != units_.rend(); ++u) leave_backward(**u);
}

void FullyShard::finish() {
  end_backward();
  or_abort("cannot go on", [&] { refuse_unfrozen(frozen_); });
  engine_->finish_backward();
  if (!synchronises_) return;
  refuse_missing();
  if (shares_buffers_) share_all_buffers();
}

void FullyShard::share_all_buffers() {
  buffers_.share(*axes_.shard);
  if (axes_.replicate != nullptr) buffers_.share(*axes_.replicate);
}

void FullyShard::synchronise(bool reduces) {
  synchronises_ = reduces;
  engine_->synchronise(reduces);
}

// The ranks agree on the first parameter that lacks a gradient somewhere: the largest of what they
// have, which is 0 where nothing is missing.
void FullyShard::refuse_missing() {
  constexpr unsigned kUnitBits = 20, kParameterBits = 20;
  const parallel::Agreement ranks(*axes_.shard, axes_.replicate);
  const auto rank = static_cast<std::uint64_t>(ranks.rank());
  std::uint64_t missing = 0;
  for (auto& u : units_) {
    for (std::size_t p = 0; p < u->arrivals.size(); ++p) {
      const bool is_missing = u->had_backward && !u->arrivals[p].ever &&
                              engine_->unit(u->number).parameters[p].count > 0;
      if (is_missing && missing == 0) {
        missing = ((rank + 1) << kUnitBits | u->number) << kParameterBits | p;
      }
      u->arrivals[p].ever = false;
    }
    u->had_backward = false;
  }
  if (allow_unused_) return;
  const Call call = parallel::call_of(Collective::all_reduce, &missing, &missing, 1,
                                      DataType::uint64, ReduceKind::max);
  axes_.shard->run(call, "missing gradients");
  if (axes_.replicate != nullptr) axes_.replicate->run(call, "missing gradients");
  if (missing == 0) return;
  const auto low = [](std::uint64_t value, unsigned bits) { return value & ((1u << bits) - 1); };
  const UnitState& u = *units_.at(low(missing >> kParameterBits, kUnitBits));
  const int culprit = static_cast<int>(missing >> (kUnitBits + kParameterBits)) - 1;
  throw Error(
      ErrorCode::mismatch,
      fmt::format("the parameter {} of unit '{}' got no gradient on {}; where that is meant "
                  "to be, allow_unused() takes it for zero, and discard_gradients() leaves "
                  "the step out",
                  u.parameters.at(low(missing, kParameterBits)).name, u.name, ranks.name(culprit)),
      ranks.world_rank(culprit));
}

}  // namespace tutti::libtorch

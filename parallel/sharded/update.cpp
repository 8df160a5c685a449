// The part of ShardedDataParallel for gradients and what they change: the end of the backward, the
// norm, the step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/convert.h"
#include "parallel/gradient_norm.h"
#include "parallel/sharded/misused.h"
#include "parallel/sharded/sharded.h"

namespace tutti::parallel {
namespace {

using Use = UnitState::Use;

// A gradient that is not finite, as a number that is larger than 0.
constexpr int kUnitBits = 20, kParameterBits = 24;
constexpr std::uint64_t low(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace

void ShardedDataParallel::nothing_in_use(const char* call) const {
  if (disagreement_) throw *disagreement_;
  for (const UnitState& u : state_.units) {
    if (u.use != Use::none) misused(fmt::format("{} while unit '{}' is in use", call, u.unit.name));
  }
}

// Earlier gathered parameters of the unit are void. Stages 1 and 2 gather them anew, if its shards
// have changed.
void ShardedDataParallel::spread_parameters(UnitState& u, bool changed) {
  u.part.reset();
  if (state_.sharded_parameters()) {
    gathering_.release(u);
  } else if (changed) {
    gathering_.wait(u);
    u.gathered = false;
    gathering_.start(u);
  }
}

void ShardedDataParallel::update(const Optimizer& optimizer, UnitState& u) {
  const Precision& types = state_.policy.precision;
  for (std::size_t p = 0; p < u.unit.parameters.size(); ++p) {
    const std::uint64_t number = ++u.steps[p];  // on all ranks, also on those without a part of it
    const LocalRange range = state_.local(u, p);
    if (range.count == 0) continue;
    state_.device.update(
        optimizer,
        {.type = types.master,
         .master = state_.master(u, range),
         .state = {state_.optimizer_state(0, u, range), state_.optimizer_state(1, u, range)},
         .gradient_type = types.reduce,
         .gradient = state_.gradient_shard(u, range),
         .compute_type = types.compute,
         .compute = state_.has_master() ? state_.compute(u, range) : nullptr,
         .count = range.count,
         .gradient_scale = gradient_scale_,
         .decay_scale = u.unit.parameters[p].weight_decay,
         .step = number});
  }
}

void ShardedDataParallel::check_gradients(UnitState& u) {
  const DataType type = state_.policy.precision.gradient;
  for (std::size_t p = 0; not_finite_ == 0 && p < u.unit.parameters.size(); ++p) {
    const std::byte* data = state_.full_gradients(u) + u.layout.offset(p) * size_of(type);
    if (all_finite(data, type, u.unit.parameters[p].count)) continue;
    const auto rank = static_cast<std::uint64_t>(agreement_.rank());
    const auto unit = static_cast<std::uint64_t>(&u - state_.units.data());
    not_finite_ = ((rank + 1) << kUnitBits | unit) << kParameterBits | p;
  }
}

void ShardedDataParallel::finish_backward() {
  nothing_in_use("finish_backward()");
  if (!synchronises_) return;
  reduction_.wait_all();
  happens({Event::Kind::finish, 0});
  finished_ = true;
  if (!state_.policy.check_finite) return;
  const std::uint64_t found = agreement_.largest(not_finite_);
  not_finite_ = 0;
  if (found == 0) return;
  const std::uint64_t unit = low(found >> kParameterBits, kUnitBits);
  const int rank = static_cast<int>(found >> (kParameterBits + kUnitBits)) - 1;
  const Unit& named = state_.units[unit].unit;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the gradient of parameter '{}' of unit '{}' is not finite on {}; "
                          "discard_gradients() leaves the step out",
                          named.parameters[low(found, kParameterBits)].name, named.name,
                          agreement_.name(rank)),
              agreement_.world_rank(rank));
}

double ShardedDataParallel::gradient_norm(std::span<Axis* const> also) {
  if (!finished_) misused("the norm of gradients before finish_backward()");
  const DataType type = state_.policy.precision.reduce;
  std::vector<Device::Values> counted;
  for (const UnitState& u : state_.units) {
    if (!u.reduced) continue;
    for (std::size_t p = 0; p < u.unit.parameters.size(); ++p) {
      const LocalRange range = state_.local(u, p);
      if (range.count == 0 || !u.unit.parameters[p].in_norm) continue;
      counted.push_back({state_.gradient_shard(u, range), range.count});
    }
  }
  std::vector<Axis*> axes{state_.axes.shard};
  axes.insert(axes.end(), also.begin(), also.end());
  return parallel::gradient_norm(state_.device.sum_of_squares(type, counted), axes);
}

double ShardedDataParallel::clip_gradients(double most, std::span<Axis* const> also) {
  if (!(most >= 0)) misused(fmt::format("gradients are clipped to a norm of {}", most));
  const double norm = gradient_norm(also);
  clip_gradients(most, norm);
  return norm;
}

void ShardedDataParallel::clip_gradients(double most, double norm) {
  if (!(most >= 0)) misused(fmt::format("gradients are clipped to a norm of {}", most));
  if (!finished_) misused("clip_gradients() before finish_backward()");
  gradient_scale_ = norm > most ? most / norm : 1;
}

void ShardedDataParallel::step(const Optimizer& optimizer) {
  nothing_in_use("step()");
  optimizer.check_options();
  if (!finished_) misused("step() before finish_backward()");
  for (const UnitState& u : state_.units) {
    if (u.unread) {
      misused(
          fmt::format("step(): gradients of unit '{}' were not reduced, as synchronise(false) "
                      "held in its last backward",
                      u.unit.name));
    }
  }
  prepare(optimizer);
  ++steps_;
  // The gather of a unit overlaps with the updates of those after it.
  for (UnitState& u : state_.units) {
    if (u.reduced) update(optimizer, u);
    spread_parameters(u, u.reduced);
  }
  forget_gradients();
}

void ShardedDataParallel::discard_gradients() {
  forget_gradients();
  state_.forget_left_out();
}

void ShardedDataParallel::forget_gradients() {
  reduction_.wait_all();
  for (UnitState& u : state_.units) reduction_.discard(u);
  gradient_scale_ = 1;
  finished_ = false;
}

}  // namespace tutti::parallel

// The part of ShardedDataParallel for the beginning of training, also from a saved state:
// parameters and the optimizer's state, into the shards and out of them.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/sharded/misused.h"
#include "parallel/sharded/sharded.h"

namespace tutti::parallel {

ShardedDataParallel::Shard ShardedDataParallel::shard(ParameterId id) const {
  const UnitState& u = holding(id);
  const LocalRange range = state_.local(u, id.parameter);
  Shard shard{.begin = range.begin, .count = range.count, .steps = u.steps[id.parameter]};
  if (range.count == 0) return shard;
  shard.master = state_.master(u, range);
  for (std::size_t i = 0; i < 2; ++i) shard.state[i] = state_.optimizer_state(i, u, range);
  if (u.reduced) shard.gradient = state_.gradient_shard(u, range);
  return shard;
}

void ShardedDataParallel::check_values(ParameterId id, const void* values) const {
  const auto& p = state_.units[id.unit].unit.parameters[id.parameter];
  if (values != nullptr || p.count == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("what is to be loaded into parameter '{}' is null, but has {} elements",
                          p.name, p.count));
}

void ShardedDataParallel::load(ParameterId id, const void* values) {
  const Shard mine = shard(id);
  check_values(id, values);
  if (mine.count == 0) return;
  gathering_.wait(state_.units[id.unit]);  // it may be read from there
  take(mine, mine.master, values);
}

void ShardedDataParallel::load_state(ParameterId id, std::size_t i, const void* values) {
  const Shard mine = shard(id);
  if (i >= states()) {
    misused(
        fmt::format("load_state() of state {} of parameter '{}': there are {}; prepare() "
                    "makes those of an optimizer",
                    i, state_.units[id.unit].unit.parameters[id.parameter].name, states()));
  }
  check_values(id, values);
  if (mine.count > 0) take(mine, mine.state[i], values);
}

void ShardedDataParallel::take(const Shard& mine, void* to, const void* values) const {
  const std::size_t size = size_of(state_.policy.precision.master);
  state_.device.copy(to, static_cast<const std::byte*>(values) + mine.begin * size,
                     mine.count * size);
}

void ShardedDataParallel::set_steps(ParameterId id, std::uint64_t steps) {
  (void)holding(id);
  state_.units[id.unit].steps[id.parameter] = steps;
}

void ShardedDataParallel::prepare(const Optimizer& optimizer) {
  if (!prepared_) {
    state_.make_optimizer_state(optimizer.states());
    prepared_ = true;
  } else if (optimizer.states() != states()) {
    misused(
        fmt::format("{} keeps {} numbers for each parameter, the optimizer before it {}: "
                    "an engine keeps to one optimizer",
                    optimizer.name(), optimizer.states(), states()));
  }
}

void ShardedDataParallel::share_parameters() {
  nothing_in_use("share_parameters()");
  agree_on_progress();
  const Precision& types = state_.policy.precision;
  const auto to_replicas = [&](std::string_view what, UnitState& u, std::byte* data,
                               std::size_t count) {
    if (state_.axes.replicate == nullptr || count == 0) return;
    of_unit(what, u, [&] {
      state_.axes.replicate->run(call_of(Collective::broadcast, data, data, count, types.master));
    });
  };
  for (UnitState& u : state_.units) {
    gathering_.wait(u);
    for (const Piece& piece : u.layout.pieces()) {
      const LocalRange range = state_.block(piece);
      if (range.count == 0) continue;
      std::byte* const master = state_.master(u, range);
      to_replicas("the broadcast of the parameters to replicas", u, master, range.count);
      if (state_.has_master()) {
        state_.device.convert(types.master, master, types.compute, state_.compute(u, range),
                              range.count);
      }
    }
    for (std::size_t i = 0; i < states(); ++i) {
      to_replicas("the broadcast of the optimizer's state to replicas", u,
                  state_.optimizer_state(i, u, {}), u.layout.shard());
    }
  }
  for (UnitState& u : state_.units) spread_parameters(u, true);
  shared_ = true;
}

// Ranks that go on from different steps would make different updates.
void ShardedDataParallel::agree_on_progress() {
  std::vector<std::string> lines{fmt::format("an optimizer of {} states", states())};
  for (const UnitState& u : state_.units) {
    for (std::size_t p = 0; p < u.steps.size(); ++p) {
      lines.push_back(fmt::format("{} steps of parameter '{}' of unit '{}'", u.steps[p],
                                  u.unit.parameters[p].name, u.unit.name));
    }
  }
  agree(agreement_, "where training goes on", lines);
}

void ShardedDataParallel::gather(std::size_t unit, Kept what, void* to) {
  nothing_in_use("gather()");
  const std::size_t state = static_cast<std::size_t>(what) - 1;
  const bool there = what == Kept::parameters || state < states();
  if (unit >= units() || !there) {
    misused(fmt::format("gather({}, {}): there are {} units and {} states of the optimizer", unit,
                        static_cast<int>(what), units(), states()));
  }
  UnitState& u = state_.units[unit];
  const DataType type = state_.policy.precision.master;
  of_unit("the all_gather of what is kept", u, [&] {
    for (const Piece& piece : u.layout.pieces()) {
      const LocalRange range = state_.block(piece);
      if (range.count == 0) continue;
      const std::byte* const mine = what == Kept::parameters
                                        ? state_.master(u, range)
                                        : state_.optimizer_state(state, u, range);
      state_.axes.shard->run(call_of(
          Collective::all_gather, mine,
          static_cast<std::byte*>(to) + piece.full_offset * size_of(type), range.count, type));
    }
  });
}

}  // namespace tutti::parallel

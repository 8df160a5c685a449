#include "parallel/sharded/sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/agreement.h"
#include "parallel/sharded/declare.h"
#include "parallel/sharded/misused.h"

namespace tutti::parallel {
namespace {

using Use = UnitState::Use;

const ShardedAxes& checked(const ShardedAxes& axes) {
  if (axes.shard != nullptr) return axes;
  throw Error(ErrorCode::invalid_argument, "ShardedAxes: there is no axis to shard over");
}

std::vector<Unit> agreed(std::vector<Unit> units, const Policy& policy, const ShardedAxes& axes,
                         Agreement ranks) {
  agree_on_declarations(ranks, units, policy, axes);
  return units;
}

const char* word(Use use) {
  switch (use) {
    case Use::forward:
      return "in its forward";
    case Use::backward:
      return "in its backward";
    case Use::none:
      break;
  }
  return "not in use";
}

constexpr std::size_t kLongHistory = 4096;

}  // namespace

ShardedDataParallel::ShardedDataParallel(std::vector<Unit> units, const Policy& policy,
                                         const ShardedAxes& axes)
    : agreement_(*checked(axes).shard, axes.replicate),
      state_(agreed(std::move(units), policy, axes, agreement_), policy, axes),
      gathering_(state_),
      reduction_(state_) {}

ShardedDataParallel::~ShardedDataParallel() {
  // Memory stays until nobody uses it.
  gathering_.abandon();
  reduction_.abandon();
}

UnitState& ShardedDataParallel::at(std::size_t unit, const char* event, Use expected) {
  if (disagreement_) throw *disagreement_;
  if (unit >= state_.units.size()) {
    misused(fmt::format("{}({}): there are {} units", event, unit, state_.units.size()));
  }
  UnitState& u = state_.units[unit];
  if (u.use != expected) {
    misused(fmt::format("{} of unit '{}', which is {}", event, u.unit.name, word(u.use)));
  }
  if (!shared_) misused(fmt::format("{} before share_parameters()", event));
  return u;
}

// --- Events --------------------------------------------------------------------------------------

void ShardedDataParallel::before_forward(std::size_t unit) {
  UnitState& u = at(unit, "before_forward", Use::none);
  use(u, {Event::Kind::forward, static_cast<std::uint32_t>(unit)}, state_.policy.prefetch_forward);
  u.use = Use::forward;
}

void ShardedDataParallel::after_forward(std::size_t unit) {
  UnitState& u = at(unit, "after_forward", Use::forward);
  u.use = Use::none;
  if (!state_.sharded_parameters()) return;
  if (u.reshard == Reshard::no) {
    u.kept = true;
    return;
  }
  if (u.reshard == Reshard::to_group) gathering_.keep_part(u);
  gathering_.release(u);
}

bool ShardedDataParallel::before_backward(std::size_t unit, NewGradients of) {
  UnitState& u = at(unit, "before_backward", Use::none);
  use(u, {Event::Kind::backward, static_cast<std::uint32_t>(unit)},
      state_.policy.prefetch_backward);
  const bool begins = reduction_.prepare(u, of == NewGradients::zeros);
  u.use = Use::backward;
  finished_ = false;
  return begins;
}

void ShardedDataParallel::after_backward(std::size_t unit) {
  UnitState& u = at(unit, "after_backward", Use::backward);
  u.use = Use::none;
  gathering_.release(u);
  u.part.reset();
  if (state_.policy.check_finite) check_gradients(u);
  if (synchronises_) reduction_.start(u);
}

// The unit's parameters are here, and those that come next are on their way.
void ShardedDataParallel::use(UnitState& u, Event event, std::size_t ahead) {
  happens(event);
  if (state_.sharded_parameters()) {
    const std::vector<Event> expected = order_.expected(ahead);
    const auto is_next = [&](std::size_t i) {
      return std::ranges::any_of(expected, [&](const Event& e) { return e.unit == i; });
    };
    // Units that were gathered ahead, and are not next after all, make room.
    for (std::size_t i = 0; i < state_.units.size(); ++i) {
      UnitState& other = state_.units[i];
      if (&other != &u && other.use == Use::none && !other.kept && !is_next(i)) {
        gathering_.release(other);
      }
    }
    gathering_.start(u);
    for (const Event& e : expected) gathering_.start(state_.units[e.unit]);
  }
  gathering_.wait(u);
}

const UnitState& ShardedDataParallel::holding(ParameterId id) const {
  if (id.unit < state_.units.size() &&
      id.parameter < state_.units[id.unit].unit.parameters.size()) {
    return state_.units[id.unit];
  }
  misused(fmt::format("there is no parameter {} of unit {}", id.parameter, id.unit));
}

const void* ShardedDataParallel::parameter(ParameterId id) const {
  const UnitState& u = holding(id);
  if (u.use == Use::none) {
    misused(
        fmt::format("parameter '{}' of unit '{}' is used outside of the unit's forward and "
                    "backward",
                    u.unit.parameters[id.parameter].name, u.unit.name));
  }
  return state_.full_parameters(u) +
         u.layout.offset(id.parameter) * size_of(state_.policy.precision.compute);
}

void* ShardedDataParallel::gradient(ParameterId id) const {
  const UnitState& u = holding(id);
  if (u.use != Use::backward) {
    misused(
        fmt::format("the gradient of parameter '{}' of unit '{}' is used outside of the unit's "
                    "backward",
                    u.unit.parameters[id.parameter].name, u.unit.name));
  }
  return state_.full_gradients(u) +
         u.layout.offset(id.parameter) * size_of(state_.policy.precision.gradient);
}

// --- What the ranks have to have in common -------------------------------------------------------

// An event that has followed the same events before needs no check: ranks that go different known
// ways find out when they finish, or when their calls do not match.
void ShardedDataParallel::happens(Event event) {
  const bool finishes = event.kind == Event::Kind::finish;
  if (finishes || !order_.is_known(event) || order_.history().size() >= kLongHistory) {
    const auto agree = [&] { return agreement_.same(mix(order_.hash(), event.code() + 1)); };
    bool agreed = true;
    if (finishes) {
      try {
        agreed = agree();
      } catch (const Error& e) {
        throw Error(e.code(), fmt::format("the end of the backward of all units: {}", e.what()),
                    e.rank());
      }
    } else {
      of_unit(event.kind == Event::Kind::forward ? "whether all ranks come to the forward"
                                                 : "whether all ranks come to the backward",
              state_.units[event.unit], [&] { agreed = agree(); });
    }
    if (!agreed) report_disagreement(event);
    if (!finishes && order_.history().size() >= kLongHistory) order_.forget_history();
  }
  order_.record(event);
  if (finishes) order_.forget_history();
}

void ShardedDataParallel::report_disagreement(Event event) {
  order_.record(event);
  // The events of all ranks, from the last finish on; 0: there are no more.
  const std::vector<Event>& mine = order_.history();
  std::vector<std::uint64_t> codes(agreement_.largest(mine.size()));
  for (std::size_t i = 0; i < mine.size(); ++i) codes[i] = mine[i].code() + 1;
  const std::vector<std::uint64_t> all = agreement_.all(codes);
  const auto describe = [&](std::uint64_t code) -> std::string {
    if (code == 0) return "nothing more";
    const Event e = Event::of(code - 1);
    if (e.kind == Event::Kind::finish) return "finish_backward()";
    return fmt::format("the {} of unit '{}'",
                       e.kind == Event::Kind::forward ? "forward" : "backward",
                       state_.units[e.unit].unit.name);
  };
  const Difference first = first_difference(all, codes.size());
  const auto came_to = [&](int rank) {
    return describe(all[static_cast<std::size_t>(rank) * codes.size() + first.entry]);
  };
  disagreement_ =
      first.rank < 0
          ? Error(ErrorCode::mismatch, "ranks do not go through the units in the same order")
          : Error(ErrorCode::mismatch,
                  fmt::format("ranks do not go through the units in the same order: {} came to {}, "
                              "{} to {} (event {} since the last finish_backward())",
                              agreement_.name(first.rank), came_to(first.rank),
                              agreement_.name(first.other), came_to(first.other), first.entry + 1),
                  agreement_.world_rank(first.rank));
  throw *disagreement_;
}

ShardedStatistics ShardedDataParallel::statistics() const {
  return {.parameters = state_.parameters,
          .gathered = state_.gathered,
          .full = state_.full,
          .shard = state_.shard,
          .window = state_.memory.use(MemoryKind::window),
          .host = state_.memory.use(MemoryKind::host),
          .total = state_.memory.total(),
          .most_unsharded = gathering_.most_at_once(),
          .gather_wait = gathering_.waited(),
          .reduce_wait = reduction_.waited()};
}

}  // namespace tutti::parallel

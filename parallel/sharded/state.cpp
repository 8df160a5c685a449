#include "parallel/sharded/state.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/memory_need.h"

namespace tutti::parallel {

State::State(std::vector<Unit> declared, const Policy& p, const ShardedAxes& a)
    : policy(p),
      axes(a),
      device(axes.shard->device()),
      memory(MemoryPool::Reuse::yes, device),
      label(axes.shard->new_label("sharded data parallel")) {
  const auto ranks = static_cast<std::size_t>(axes.shard->size());
  for (const Unit& unit : declared) {
    UnitState& u = units.emplace_back(unit, policy, ranks);
    u.full_offset = full;
    u.shard_offset = shard;
    full += u.layout.full();
    shard += u.layout.shard();
    gathered += u.layout.gathered();
    parameters += u.layout.parameters();
  }
  const Precision& types = policy.precision;
  agree_on_memory({*axes.shard, axes.replicate}, "sharded data parallel (parameters and gradients)",
                  bytes_at_first(), device);
  parameters_ = memory.zeros((sharded_parameters() ? shard : full) * size_of(types.compute));
  if (has_master()) master_ = memory.zeros(shard * size_of(types.master), state_kind());
  if (policy.stage == Stage::optimizer) gradients_ = memory.zeros(full * size_of(types.gradient));
  if (!reduces_in_place()) gradient_shards_ = memory.zeros(shard * size_of(types.reduce));
  if (feeds_back()) left_out_ = memory.zeros(full * sizeof(float), MemoryKind::host);
}

std::uint64_t State::bytes_at_first() const {
  const Precision& types = policy.precision;
  std::uint64_t bytes = (sharded_parameters() ? shard : full) * size_of(types.compute);
  if (has_master()) bytes += shard * size_of(types.master);
  if (policy.stage == Stage::optimizer) bytes += full * size_of(types.gradient);
  if (!reduces_in_place()) bytes += shard * size_of(types.reduce);
  if (feeds_back()) bytes += full * sizeof(float);
  return bytes;
}

LocalRange State::block(const Piece& piece) const {
  const auto rank = static_cast<std::size_t>(axes.shard->rank());
  return {.begin = 0,
          .count = piece.block,
          .shard_offset = piece.shard_offset,
          .full_offset = piece.full_offset + rank * piece.block};
}

LocalRange State::local(const UnitState& u, std::size_t parameter) const {
  return u.layout.local(parameter, static_cast<std::size_t>(axes.shard->rank()));
}

std::byte* State::full_parameters(const UnitState& u) const {
  if (sharded_parameters()) return u.full.data();
  return parameters_.data() + u.full_offset * size_of(policy.precision.compute);
}

std::byte* State::full_gradients(const UnitState& u) const {
  if (policy.stage != Stage::optimizer) return u.gradient.data();
  return gradients_.data() + u.full_offset * size_of(policy.precision.gradient);
}

std::byte* State::compute(const UnitState& u, const LocalRange& range) const {
  const std::size_t at = sharded_parameters() ? u.shard_offset + range.shard_offset
                                              : u.full_offset + range.full_offset;
  return parameters_.data() + at * size_of(policy.precision.compute);
}

std::byte* State::master(const UnitState& u, const LocalRange& range) const {
  if (!has_master()) return compute(u, range);
  return master_.data() + (u.shard_offset + range.shard_offset) * size_of(policy.precision.master);
}

std::byte* State::gradient_shard(const UnitState& u, const LocalRange& range) const {
  const std::size_t size = size_of(policy.precision.reduce);
  if (reduces_in_place()) return gradients_.data() + (u.full_offset + range.full_offset) * size;
  return gradient_shards_.data() + (u.shard_offset + range.shard_offset) * size;
}

std::byte* State::optimizer_state(std::size_t i, const UnitState& u,
                                  const LocalRange& range) const {
  if (i >= optimizer_states_) return nullptr;
  return optimizer_state_[i].data() +
         (u.shard_offset + range.shard_offset) * size_of(policy.precision.master);
}

float* State::left_out(const UnitState& u) const {
  if (!left_out_) return nullptr;
  return reinterpret_cast<float*>(left_out_.data()) + u.full_offset;
}

void State::forget_left_out() {
  if (left_out_.size() > 0) std::memset(left_out_.data(), 0, left_out_.size());
}

void State::make_optimizer_state(std::size_t states) {
  for (; optimizer_states_ < states; ++optimizer_states_) {
    optimizer_state_[optimizer_states_] =
        memory.zeros(shard * size_of(policy.precision.master), state_kind());
  }
}

void of_unit(std::string_view what, const UnitState& u, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{} of unit '{}': {}", what, u.unit.name, e.what()),
                e.rank());
  }
}

void wait_quietly(Pending& pending) noexcept {
  try {
    pending.wait();
  } catch (const std::exception&) {  // NOLINT: no caller is left to hear of it
  }
}

}  // namespace tutti::parallel

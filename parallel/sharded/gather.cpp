#include "parallel/sharded/gather.h"

#include <algorithm>
#include <cstring>

namespace tutti::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kGather = "the all_gather of the parameters";

}  // namespace

void Gathering::start(UnitState& u) {
  if (u.gathered) return;
  if (state_.sharded_parameters()) {
    u.full = state_.memory.allocate(u.layout.full() * size_of(state_.policy.precision.compute));
    most_ = std::max(most_, ++now_);
  }
  u.gathered = true;
  of_unit(kGather, u, [&] { u.part ? start_from_parts(u) : start_from_shards(u); });
}

void Gathering::start_from_shards(UnitState& u) {
  const DataType type = state_.policy.precision.compute;
  for (const Piece& piece : u.layout.pieces()) {
    if (piece.block == 0) continue;
    u.gathers.push_back(state_.axes.shard->start(
        call_of(Collective::all_gather, state_.compute(u, state_.block(piece)),
                state_.full_parameters(u) + piece.full_offset * size_of(type), piece.block, type),
        u.unit.name));
  }
}

void Gathering::start_from_parts(UnitState& u) {
  const DataType type = state_.policy.precision.compute;
  const auto ranks = static_cast<std::size_t>(state_.axes.shard->size());
  const auto group = static_cast<std::size_t>(state_.axes.group->size());
  const std::byte* part = u.part.data();
  for (const Piece& piece : u.layout.pieces()) {
    const std::size_t count = piece.block * ranks / group;
    if (count == 0) continue;
    u.gathers.push_back(state_.axes.group->start(
        call_of(Collective::all_gather, part, u.full.data() + piece.full_offset * size_of(type),
                count, type),
        u.unit.name));
    part += count * size_of(type);
  }
}

void Gathering::wait(UnitState& u) {
  if (u.gathers.empty()) return;
  const auto start = Clock::now();
  of_unit(kGather, u, [&] {
    for (Pending& gather : u.gathers) gather.wait();
  });
  u.gathers.clear();
  waited_ += Clock::now() - start;
}

void Gathering::release(UnitState& u) {
  if (!state_.sharded_parameters() || !u.gathered) return;
  wait(u);
  u.full.reset();
  u.gathered = u.kept = false;
  --now_;
}

void Gathering::keep_part(UnitState& u) {
  const std::size_t size = size_of(state_.policy.precision.compute);
  const auto ranks = static_cast<std::size_t>(state_.axes.shard->size());
  const auto group = static_cast<std::size_t>(state_.axes.group->size());
  const auto rank = static_cast<std::size_t>(state_.axes.group->rank());
  if (!u.part) u.part = state_.memory.allocate(u.layout.gathered() / group * size);
  std::byte* part = u.part.data();
  for (const Piece& piece : u.layout.pieces()) {
    const std::size_t count = piece.block * ranks / group;
    if (count == 0) continue;
    std::memcpy(part, u.full.data() + (piece.full_offset + rank * count) * size, count * size);
    part += count * size;
  }
}

void Gathering::abandon() noexcept {
  for (UnitState& u : state_.units) {
    for (Pending& p : u.gathers) wait_quietly(p);
    u.gathers.clear();
  }
}

}  // namespace tutti::parallel

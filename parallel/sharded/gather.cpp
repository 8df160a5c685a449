#include "parallel/sharded/gather.h"

#include <algorithm>

#include "core/compressed.h"

namespace tutti::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kGather = "the all_gather of the parameters";

/// Bytes of all blocks that a gather of the unit among `ranks` ranks moves, compressed; `shards`:
/// of how many shards a block is.
std::size_t compressed_size(const UnitState& u, DataType type, int ranks, int shards) {
  const auto of_a_block = static_cast<std::size_t>(shards);
  std::size_t bytes = 0;
  for (const Piece& p : u.layout.pieces()) bytes += compressed_bytes(type, p.block * of_a_block);
  return bytes * static_cast<std::size_t>(ranks);
}

}  // namespace

void Gathering::start(UnitState& u) {
  if (u.gathered) return;
  if (state_.sharded_parameters()) {
    u.full = state_.memory.allocate(u.layout.full() * size_of(state_.policy.precision.compute));
    most_ = std::max(most_, ++now_);
  }
  u.gathered = true;
  if (state_.policy.gather_eight_bits) {
    const int shards = state_.axes.shard->size();
    const int ranks = u.part ? state_.axes.group->size() : shards;
    u.compressed = state_.memory.allocate(
        compressed_size(u, state_.policy.precision.compute, ranks, shards / ranks));
  }
  of_unit(kGather, u, [&] { u.part ? start_from_parts(u) : start_from_shards(u); });
}

void Gathering::start_gather(UnitState& u, Axis& axis, const std::byte* from, std::byte* to,
                             std::size_t count) {
  const DataType type = state_.policy.precision.compute;
  const auto gather = [&](const void* in, void* out, std::size_t elements, DataType of) {
    Call call = call_of(Collective::all_gather, in, out, elements, of);
    call.label = state_.label;
    u.gathers.push_back(axis.start(call, u.unit.name));
  };
  if (!state_.policy.gather_eight_bits) return gather(from, to, count, type);
  const std::size_t bytes = compressed_bytes(type, count);
  const auto ranks = static_cast<std::size_t>(axis.size());
  std::byte* all = u.compressed.data();
  for (const UnitState::Compressed& c : u.arriving)
    all += c.ranks * compressed_bytes(type, c.block);
  std::byte* const own = all + static_cast<std::size_t>(axis.rank()) * bytes;
  compress(type, from, own, count);
  u.arriving.push_back({all, to, count, ranks});
  gather(own, all, bytes, DataType::uint8);
}

void Gathering::start_from_shards(UnitState& u) {
  const DataType type = state_.policy.precision.compute;
  for (const Piece& piece : u.layout.pieces()) {
    if (piece.block == 0) continue;
    start_gather(u, *state_.axes.shard, state_.compute(u, state_.block(piece)),
                 state_.full_parameters(u) + piece.full_offset * size_of(type), piece.block);
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
    start_gather(u, *state_.axes.group, part, u.full.data() + piece.full_offset * size_of(type),
                 count);
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
  const DataType type = state_.policy.precision.compute;
  for (const UnitState::Compressed& c : u.arriving) {
    for (std::size_t r = 0; r < c.ranks; ++r) {
      decompress(type, c.from + r * compressed_bytes(type, c.block),
                 c.to + r * c.block * size_of(type), c.block);
    }
  }
  u.arriving.clear();
  u.compressed.reset();
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
    state_.device.copy(part, u.full.data() + (piece.full_offset + rank * count) * size,
                       count * size);
    part += count * size;
  }
}

void Gathering::abandon() noexcept {
  for (UnitState& u : state_.units) {
    for (Pending& p : u.gathers) wait_quietly(p);
    u.gathers.clear();
    u.arriving.clear();
  }
}

}  // namespace tutti::parallel

#include "parallel/sharded/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tutti::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kScatter = "the reduce_scatter of the gradients";
constexpr std::string_view kReplicas = "the all_reduce of the gradients among replicas";

void wait_for(std::vector<Pending>& pending) {
  for (Pending& p : pending) p.wait();
  pending.clear();
}

}  // namespace

ReduceOp GradientReduction::op() const {
  return state_.policy.divide_by == 0 ? ReduceKind::avg : ReduceKind::sum;
}

Call GradientReduction::call_for(Collective collective, const void* in, void* out,
                                 std::size_t count) const {
  Call call = call_of(collective, in, out, count, state_.policy.precision.reduce, op());
  call.compressed = state_.policy.reduce_eight_bits.has_value();
  call.label = state_.label;
  return call;
}

// The data for each rank are compressed apart.
void GradientReduction::feed_back(const Job& job) const {
  float* const left_out = state_.left_out(*job.unit);
  if (left_out == nullptr) return;
  const DataType type = state_.policy.precision.reduce;
  for (const Piece& piece : job.unit->layout.pieces()) {
    for (int r = 0; r < state_.axes.shard->size(); ++r) {
      const std::size_t at = piece.full_offset + static_cast<std::size_t>(r) * piece.block;
      parallel::feed_back(type, job.data + at * size_of(type), left_out + at, piece.block);
    }
  }
}

// What a call loses of the shard, this rank's gradients lack: so many times as the averages before
// and in the call have divided it by.
void GradientReduction::feed_back_among_replicas(const Job& job, const Piece& piece,
                                                 Call& call) const {
  float* const left_out = state_.left_out(*job.unit);
  if (left_out == nullptr) return;
  const bool averages = call.op.kind == ReduceKind::avg;
  const auto times = [&](int ranks) { return averages ? static_cast<float>(ranks) : 1.0F; };
  const float shared = times(state_.axes.shard->size());
  call.left_out = left_out + state_.block(piece).full_offset;
  call.left_out_times = shared * times(state_.axes.replicate->size());
  leave_out(call.type, static_cast<std::byte*>(call.out), call.left_out, shared, call.count);
}

std::byte* GradientReduction::target(const Job& job, const Piece& piece) const {
  const LocalRange block = state_.block(piece);
  if (job.straight) return state_.gradient_shard(*job.unit, block);
  return job.data + block.full_offset * size_of(state_.policy.precision.reduce);
}

bool GradientReduction::prepare(UnitState& u, bool zeros) {
  if (u.reducing && !u.unread && state_.reduces_in_place()) set_aside(u);
  const std::size_t bytes = u.layout.full() * size_of(state_.policy.precision.gradient);
  while (!state_.reduces_in_place() && jobs_.size() > state_.policy.reductions_in_flight) {
    finish_first();
  }
  if (state_.policy.stage != Stage::optimizer && !u.gradient) {
    u.gradient = state_.memory.allocate(bytes);
  }
  if (u.unread) return false;
  if (zeros) state_.device.zero(state_.full_gradients(u), bytes);
  return u.unread = true;
}

// Stage 1: a reduction has left its result where the next backward makes gradients.
void GradientReduction::set_aside(UnitState& u) {
  finish_all_of(u);
  const std::size_t size = size_of(state_.policy.precision.reduce);
  if (!u.earlier) u.earlier = state_.memory.allocate(u.layout.shard() * size);
  for (const Piece& piece : u.layout.pieces()) {
    if (piece.block == 0) continue;
    state_.device.copy(u.earlier.data() + piece.shard_offset * size,
                       state_.gradient_shard(u, state_.block(piece)), piece.block * size);
  }
}

void GradientReduction::finish_all_of(const UnitState& u) {
  while (std::ranges::any_of(jobs_, [&](const Job& job) { return job.unit == &u; })) finish_first();
}

void GradientReduction::start(UnitState& u) {
  const Precision& types = state_.policy.precision;
  if (u.reducing && !state_.device.computes()) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("unit '{}' is reduced for the second time in a step, and {} has no "
                            "kernels for the sum: synchronise(false) for all micro-batches but "
                            "the last adds gradients up in place",
                            u.unit.name, state_.device.name()));
  }
  Job job{.unit = &u,
          .buffer = std::move(u.gradient),
          .data = nullptr,
          .straight = !u.reducing && state_.policy.divide_by <= 1,
          .pending = {},
          .scattered = false};
  job.data = state_.policy.stage == Stage::optimizer ? state_.full_gradients(u) : job.buffer.data();
  if (types.reduce != types.gradient) {
    Buffer converted = state_.memory.allocate(u.layout.full() * size_of(types.reduce));
    state_.device.convert(types.gradient, job.data, types.reduce, converted.data(),
                          u.layout.full());
    job.buffer = std::move(converted);
    job.data = job.buffer.data();
  }
  // The call among replicas writes to what is left out.
  if (state_.axes.replicate != nullptr && state_.left_out(u) != nullptr) finish_all_of(u);
  feed_back(job);
  u.unread = false;
  u.reducing = true;
  const std::size_t size = size_of(types.reduce);
  Job& kept = jobs_.emplace_back(std::move(job));
  of_unit(kScatter, u, [&] {
    for (const Piece& piece : u.layout.pieces()) {
      if (piece.block == 0) continue;
      kept.pending.push_back(state_.axes.shard->start(
          call_for(Collective::reduce_scatter, kept.data + piece.full_offset * size,
                   target(kept, piece), piece.block),
          u.unit.name));
    }
  });
  if (state_.axes.replicate != nullptr && jobs_.size() > 1) {
    Job& before = jobs_[jobs_.size() - 2];
    if (!before.scattered) reduce_among_replicas(before);
  }
}

void GradientReduction::finish_first() {
  Job& job = jobs_.front();
  const auto start = Clock::now();
  if (!job.scattered && state_.axes.replicate != nullptr) reduce_among_replicas(job);
  of_unit(job.scattered ? kReplicas : kScatter, *job.unit, [&] { wait_for(job.pending); });
  waited_ += Clock::now() - start;
  store(job);
  jobs_.pop_front();
}

void GradientReduction::reduce_among_replicas(Job& job) {
  of_unit(kScatter, *job.unit, [&] { wait_for(job.pending); });
  job.scattered = true;
  of_unit(kReplicas, *job.unit, [&] {
    for (const Piece& piece : job.unit->layout.pieces()) {
      if (piece.block == 0) continue;
      std::byte* const block = target(job, piece);
      Call call = call_for(Collective::all_reduce, block, block, piece.block);
      feed_back_among_replicas(job, piece, call);
      job.pending.push_back(state_.axes.replicate->start(call, job.unit->unit.name));
    }
  });
}

// To where shards are; added to what earlier backwards of this step have brought.
void GradientReduction::store(Job& job) {
  UnitState& u = *job.unit;
  const bool adds = std::exchange(u.reduced, true);
  if (job.straight) return;
  const DataType type = state_.policy.precision.reduce;
  const unsigned divisor = state_.policy.divide_by;
  for (const Piece& piece : u.layout.pieces()) {
    void* const shard = state_.gradient_shard(u, state_.block(piece));
    const void* const before =
        u.earlier ? u.earlier.data() + piece.shard_offset * size_of(type) : shard;
    state_.device.add(type, shard, target(job, piece), divisor, adds ? before : nullptr,
                      piece.block);
  }
}

void GradientReduction::wait_all() {
  while (!jobs_.empty()) finish_first();
}

void GradientReduction::abandon() noexcept {
  for (Job& job : jobs_) {
    for (Pending& p : job.pending) wait_quietly(p);
  }
  jobs_.clear();
}

void GradientReduction::discard(UnitState& u) {
  u.gradient.reset();
  u.earlier.reset();
  u.unread = u.reducing = u.reduced = false;
}

}  // namespace tutti::parallel

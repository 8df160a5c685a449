// State: the shards, and the units that are gathered and reduced now, with their places. gather.h
// and reduce.h change it; sharded.h decides when.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>
#include <vector>

#include "../axis.h"
#include "../memory_pool.h"
#include "layout.h"
#include "policy.h"

namespace tutti::parallel {

/// The axes of shards, replicas and groups. They outlive the engine.
struct ShardedAxes {
  Axis* shard = nullptr;
  Axis* replicate = nullptr;  // ranks that have the same shards (HSDP); null: none
  Axis* group = nullptr;      // for Reshard::to_group
};

struct UnitState {
  UnitState(const Unit& u, const Policy& policy, std::size_t ranks)
      : unit(u),
        layout(u, policy.layout, ranks, policy.alignment),
        reshard(u.reshard.value_or(policy.reshard_after_forward)),
        steps(u.parameters.size()) {}

  Unit unit;
  UnitLayout layout;
  Reshard reshard;
  std::size_t full_offset = 0, shard_offset = 0;  // among all units, in elements

  enum class Use : unsigned char { none, forward, backward };
  Use use = Use::none;

  // Parameters.
  Buffer full;                   // stage 3, while they are gathered
  Buffer part;                   // of Reshard::to_group
  std::vector<Pending> gathers;  // gathers without a wait so far
  struct Compressed {            // blocks of all ranks, on their way
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t block = 0, ranks = 0;  // elements of each
  };
  Buffer compressed;                 // Policy::gather_eight_bits: while they come
  std::vector<Compressed> arriving;  // in it
  bool gathered = false;             // or being gathered
  bool kept = false;                 // from the forward for the backward

  // Gradients.
  Buffer gradient;        // stages 2 and 3: all of them, while they are made
  bool unread = false;    // there are some that no reduction has been started of
  bool reducing = false;  // a reduction was started since the last step
  bool reduced = false;   // one has ended
  // Stage 1: a shard of the sums from reductions before the last backward; empty if there are none.
  Buffer earlier;

  std::vector<std::uint64_t> steps;  // by parameter: updates that the optimizer has made of it
};

struct State {
  State(std::vector<Unit> units, const Policy& policy, const ShardedAxes& axes);

  const Policy policy;
  const ShardedAxes axes;
  Device& device;             // of the axes
  MemoryPool memory;          // before all buffers
  const std::uint16_t label;  // of calls on all axes
  std::vector<UnitState> units;
  std::size_t parameters = 0, gathered = 0, full = 0, shard = 0;  // elements

  bool sharded_parameters() const { return policy.stage == Stage::parameters; }
  bool has_master() const { return policy.precision.master != policy.precision.compute; }
  /// Stage 1: the shards of the gradients lie where backward made them.
  bool reduces_in_place() const {
    return policy.stage == Stage::optimizer && policy.precision.reduce == policy.precision.gradient;
  }

  /// This rank's block of a piece; and its part of a parameter.
  LocalRange block(const Piece& piece) const;
  LocalRange local(const UnitState& u, std::size_t parameter) const;

  /// The place of all of a unit's parameters and gradients; null if there are none now.
  std::byte* full_parameters(const UnitState& u) const;
  std::byte* full_gradients(const UnitState& u) const;
  /// The place of a part of this rank's shard.
  std::byte* compute(const UnitState& u, const LocalRange& range) const;
  std::byte* master(const UnitState& u, const LocalRange& range) const;
  std::byte* gradient_shard(const UnitState& u, const LocalRange& range) const;
  std::byte* optimizer_state(std::size_t i, const UnitState& u, const LocalRange& range) const;
  /// What compression has left out of a unit's gradients so far, as full_gradients() lie; null
  /// without error feedback.
  float* left_out(const UnitState& u) const;
  void forget_left_out();
  void make_optimizer_state(std::size_t states);
  std::size_t optimizer_states() const { return optimizer_states_; }

 private:
  std::uint64_t bytes_at_first() const;
  bool feeds_back() const {
    return policy.reduce_eight_bits && policy.reduce_eight_bits->error_feedback;
  }
  MemoryKind state_kind() const {
    return policy.offload_state ? MemoryKind::host : MemoryKind::window;
  }

  Buffer parameters_;       // stage 3: shards; else all; of the compute type
  Buffer master_;           // where that is another type
  Buffer gradients_;        // stage 1: all of them
  Buffer gradient_shards_;  // unless they are among those
  Buffer left_out_;         // with error feedback: for all gradients, float32
  std::array<Buffer, 2> optimizer_state_;
  std::size_t optimizer_states_ = 0;
};

/// Runs `body`, and adds the unit to its exception.
void of_unit(std::string_view what, const UnitState& u, const std::function<void()>& body);

/// Waits until the operation is over, and drops its exception: the caller that needs the result
/// gets it.
void wait_quietly(Pending& pending) noexcept;

}  // namespace tutti::parallel

// State: what is sharded, gathered and reduced now, and where it lies. Which calls change it is not
// known here (gather.h, reduce.h), nor when (sharded.h).
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

/// The ranks among which things are sharded, and what else there is. They have to outlive the
/// engine.
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
  std::vector<Pending> gathers;  // those that nobody has waited for
  bool gathered = false;         // or being gathered
  bool kept = false;             // from the forward for the backward

  // Gradients.
  Buffer gradient;        // stages 2 and 3: all of them, while they are made
  bool unread = false;    // there are some that no reduction has been started of
  bool reducing = false;  // a reduction was started since the last step
  bool reduced = false;   // one has ended
  // Stage 1: a shard, of what reductions before the last backward have brought; none: no elements.
  Buffer earlier;

  std::vector<std::uint64_t> steps;  // by parameter: updates that the optimizer has made of it
};

struct State {
  State(std::vector<Unit> units, const Policy& policy, const ShardedAxes& axes);

  const Policy policy;
  const ShardedAxes axes;
  MemoryPool memory{MemoryPool::Reuse::yes};  // before all buffers
  std::vector<UnitState> units;
  std::size_t parameters = 0, gathered = 0, full = 0, shard = 0;  // elements

  bool sharded_parameters() const { return policy.stage == Stage::parameters; }
  bool has_master() const { return policy.precision.master != policy.precision.compute; }
  /// Stage 1: the shards of the gradients are where they were made.
  bool reduces_in_place() const {
    return policy.stage == Stage::optimizer && policy.precision.reduce == policy.precision.gradient;
  }

  /// This rank's block of a piece; and its part of a parameter.
  LocalRange block(const Piece& piece) const;
  LocalRange local(const UnitState& u, std::size_t parameter) const;

  /// Where all of a unit's parameters and gradients are; null where there are none now.
  std::byte* full_parameters(const UnitState& u) const;
  std::byte* full_gradients(const UnitState& u) const;
  /// Where a part of this rank's shard is.
  std::byte* compute(const UnitState& u, const LocalRange& range) const;
  std::byte* master(const UnitState& u, const LocalRange& range) const;
  std::byte* gradient_shard(const UnitState& u, const LocalRange& range) const;
  std::byte* optimizer_state(std::size_t i, const UnitState& u, const LocalRange& range) const;
  void make_optimizer_state(std::size_t states);
  std::size_t optimizer_states() const { return optimizer_states_; }

 private:
  std::uint64_t bytes_at_first() const;
  MemoryKind state_kind() const {
    return policy.offload_state ? MemoryKind::host : MemoryKind::window;
  }

  Buffer parameters_;       // stage 3: shards; else all; of the compute type
  Buffer master_;           // where that is another type
  Buffer gradients_;        // stage 1: all of them
  Buffer gradient_shards_;  // unless they are among those
  std::array<Buffer, 2> optimizer_state_;
  std::size_t optimizer_states_ = 0;
};

/// Does `body`; what it throws says of which unit it is.
void of_unit(std::string_view what, const UnitState& u, const std::function<void()>& body);

/// Waits until it is over; what it throws is for whoever waits for it in earnest.
void wait_quietly(Pending& pending) noexcept;

}  // namespace tutti::parallel

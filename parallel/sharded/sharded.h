// ShardedDataParallel: ZeRO-1, ZeRO-2, ZeRO-3 and FSDP. Ranks train one model on different data,
// and each keeps a part of the optimizer's state, of the gradients, of the parameters.
//
//     ShardedDataParallel model(units, Policy::fsdp(), {.shard = &axis});
//     for each parameter: model.load({u, p}, values);       // the same on all ranks
//     model.share_parameters();
//     for each step:
//       for each unit u:            model.before_forward(u);   ...parameter({u, p})...
//                                   model.after_forward(u);
//       for each unit, backwards:   model.before_backward(u);  ...add to gradient({u, p})...
//                                   model.after_backward(u);
//       model.finish_backward();
//       model.clip_gradients(1.0);
//       model.step(optimizer);
//
// It sees memory and events only. Every function may communicate unless its comment says otherwise,
// so all ranks call them in the same order. If they do not, they get an error (mismatch), which
// names a rank and its call. The engine starts communication ahead and waits where it needs the
// result. Nothing waits for longer than the communicators' Options allow, and an error names the
// unit. After an error of a communicator only the destructor works.
//
// One thread at a time calls it. Functions throw tutti::Error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "../agreement.h"
#include "../axis.h"
#include "../optimizer/optimizer.h"
#include "gather.h"
#include "order.h"
#include "policy.h"
#include "reduce.h"
#include "state.h"
#include "unit.h"

namespace tutti::parallel {

/// What the engine has cost. The axes count the traffic (Axis::traffic()): parameters as
/// all_gather, gradients as reduce_scatter, and among replicas as all_reduce. The agreements of the
/// ranks count as all_reduce too.
struct ShardedStatistics {
  // Elements: declared; gathered, with the padding that makes blocks equal; in memory, with the
  // padding that aligns them.
  std::size_t parameters = 0, gathered = 0, full = 0, shard = 0;
  MemoryUse window, host, total;
  std::size_t most_unsharded = 0;                           // units at once, in stage 3
  std::chrono::nanoseconds gather_wait{0}, reduce_wait{0};  // communication that was exposed
};

/// The contents of a unit's gradients when its backward begins: zeros, to which the caller adds; or
/// anything, if the caller writes all of them, which saves a pass over memory.
enum class NewGradients : unsigned char { zeros, anything };

class ShardedDataParallel {
 public:
  /// Throws Error(mismatch) on all ranks, with the parameter and the rank, if their declarations
  /// differ.
  ShardedDataParallel(std::vector<Unit> units, const Policy& policy, const ShardedAxes& axes);
  /// Waits for operations under way.
  ~ShardedDataParallel();
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  // --- Where training begins, or goes on from what was saved ---
  //
  // The whole state is parameters, the optimizer's state and its steps: an engine that gets the
  // state of another one goes on with the same bits. A state saved from shard() goes back to
  // shard() on as many ranks with the same policy; a state saved from gather() fits any number of
  // ranks.

  /// This rank's part of a parameter: a run of its elements, of the master type.
  struct Shard {
    std::size_t begin = 0, count = 0;
    std::uint64_t steps = 0;  // updates that the optimizer has made of it
    void* master = nullptr;
    void* state[2] = {nullptr, nullptr};  // the optimizer's, from prepare() or its first step on
    void* gradient = nullptr;             // of the reduce type, between finish_backward and step
  };
  /// Does not communicate.
  Shard shard(ParameterId id) const;
  /// Makes the optimizer's states, of zeros, before its first step would. Then you can load them.
  /// Does not communicate.
  void prepare(const Optimizer& optimizer);
  /// The number of states of each element; 0 before prepare().
  std::size_t states() const { return state_.optimizer_states(); }
  /// Takes all elements of the parameter (of the master type), or of the optimizer's state `i`, and
  /// keeps this rank's part. Does not communicate.
  void load(ParameterId id, const void* values);
  void load_state(ParameterId id, std::size_t i, const void* values);
  /// The number of updates of the parameter, the same on all ranks. Does not communicate.
  void set_steps(ParameterId id, std::uint64_t steps);
  /// Call this after shards were loaded or written: from then on all ranks can use them. Replicas
  /// take the shards of replica 0, with the optimizer's state. Throws Error(mismatch) on all ranks
  /// if their steps differ.
  void share_parameters();
  /// The values of each element, in the master type.
  enum class Kept : unsigned char { parameters, first_state, second_state };
  /// All of a unit's elements, as layout(unit) lays them out: layout(unit).full() of them.
  void gather(std::size_t unit, Kept what, void* to);

  // --- A step ---

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  /// True if the unit's gradients begin, false if the caller adds them to those of earlier
  /// micro-batches.
  bool before_backward(std::size_t unit, NewGradients of = NewGradients::zeros);
  void after_backward(std::size_t unit);
  /// All elements of a parameter, of the compute type, between before_ and after_. Does not
  /// communicate.
  const void* parameter(ParameterId id) const;
  /// Where backward adds the parameter's gradient, of the gradient type, between before_backward
  /// and after_backward; zeros at first, unless the caller has chosen NewGradients::anything. Does
  /// not communicate.
  void* gradient(ParameterId id) const;

  /// Whether after_backward() reduces. With false for all micro-batches of a step but the last,
  /// whole gradients add up in place, which costs stages 2 and 3 the memory that they save
  /// otherwise. With true for all, every micro-batch is reduced, and only the shards add up.
  void synchronise(bool reduces) { synchronises_ = reduces; }
  /// Returns when all gradients of the step are there, and reduced.
  void finish_backward();
  /// The norm of all gradients, after their division. `also`: other axes that shard parameters. The
  /// same bits on all their ranks; infinite from 1e154 on.
  double gradient_norm(std::span<Axis* const> also = {});
  /// Scales the gradients, in the step that follows, so that their norm is at most `most`. Returns
  /// the norm before; if that is not finite, call discard_gradients() instead of step().
  double clip_gradients(double most, std::span<Axis* const> also = {});
  /// Clips where the norm is `norm`: of this engine's gradients and of others.
  void clip_gradients(double most, double norm);
  /// Leaves units without a backward since the last step unchanged.
  void step(const Optimizer& optimizer);
  /// Instead of step().
  void discard_gradients();

  // --- What there is ---

  std::size_t units() const { return state_.units.size(); }
  const Unit& unit(std::size_t u) const { return state_.units.at(u).unit; }
  const UnitLayout& layout(std::size_t u) const { return state_.units.at(u).layout; }
  const Policy& policy() const { return state_.policy; }
  const ShardedAxes& axes() const { return state_.axes; }
  Device& device() const { return state_.device; }  // of the axes
  std::uint64_t steps() const { return steps_; }    // of this engine
  ShardedStatistics statistics() const;

 private:
  UnitState& at(std::size_t unit, const char* event, UnitState::Use expected);
  const UnitState& holding(ParameterId id) const;
  void nothing_in_use(const char* call) const;
  void happens(Event event);
  [[noreturn]] void report_disagreement(Event event);
  void use(UnitState& u, Event event, std::size_t ahead);
  void check_gradients(UnitState& u);
  void update(const Optimizer& optimizer, UnitState& u);
  void spread_parameters(UnitState& u, bool changed);
  void check_values(ParameterId id, const void* values) const;
  void take(const Shard& mine, void* to, const void* values) const;
  void agree_on_progress();
  void forget_gradients();

  Agreement agreement_;
  State state_;
  Order order_;
  Gathering gathering_;
  GradientReduction reduction_;
  bool shared_ = false, prepared_ = false, synchronises_ = true, finished_ = false;
  double gradient_scale_ = 1;
  std::uint64_t steps_ = 0;
  std::uint64_t not_finite_ = 0;  // the first gradient that is not: rank, unit, parameter
  std::optional<Error> disagreement_;
};

}  // namespace tutti::parallel

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
// It sees memory and events only. Everything but the functions that say otherwise may communicate,
// so all ranks call them in the same order; where they do not, they get an error (mismatch) that
// names a rank and what it came to. Communication is started ahead and waited for where its result
// is needed. Nothing waits for longer than the communicators' Options allow, and an error says
// during which unit it happened. After an error of a communicator nothing but the destructor works.
//
// One thread at a time calls it. Functions throw tutti::Error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// What it costs. What travels is counted by the axes (Axis::traffic()): parameters as all_gather,
/// gradients as reduce_scatter, and among replicas as all_reduce, as is what the ranks agree on.
struct ShardedStatistics {
  // Elements: declared; gathered, with what makes blocks equal; in memory, with what aligns them.
  std::size_t parameters = 0, gathered = 0, full = 0, shard = 0;
  MemoryUse window, host, total;
  std::size_t most_unsharded = 0;                           // units at once, in stage 3
  std::chrono::nanoseconds gather_wait{0}, reduce_wait{0};  // communication that was exposed
};

/// What a unit's gradients are when its backward begins: zeros, to be added to; or anything, where
/// the caller writes all of them, which saves a pass over memory.
enum class NewGradients : unsigned char { zeros, anything };

class ShardedDataParallel {
 public:
  /// Throws Error(mismatch) on all ranks, with the parameter and the rank, where they have not
  /// declared the same.
  ShardedDataParallel(std::vector<Unit> units, const Policy& policy, const ShardedAxes& axes);
  /// Waits for what is under way.
  ~ShardedDataParallel();
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  // --- Where training begins, or goes on from what was saved ---
  //
  // Parameters, the optimizer's state and its steps are all that there is: an engine that is given
  // those of another one goes on with the same bits. What was saved by shard() is written to
  // shard() by as many ranks with the same policy; what was saved by gather(), by any number.

  /// What this rank keeps of a parameter: a run of its elements, of the master type.
  struct Shard {
    std::size_t begin = 0, count = 0;
    std::uint64_t steps = 0;  // updates that the optimizer has made of it
    void* master = nullptr;
    void* state[2] = {nullptr, nullptr};  // the optimizer's, from prepare() or its first step on
    void* gradient = nullptr;             // of the reduce type, between finish_backward and step
  };
  /// Does not communicate.
  Shard shard(ParameterId id) const;
  /// Makes the states that the optimizer keeps, of zeros, before its first step does. They are to
  /// be loaded then. Does not communicate.
  void prepare(const Optimizer& optimizer);
  /// How many states are kept for each element; 0 before prepare().
  std::size_t states() const { return state_.optimizer_states(); }
  /// Takes this rank's part of all the parameter's elements, which are of the master type, or of
  /// the optimizer's state `i`. Does not communicate.
  void load(ParameterId id, const void* values);
  void load_state(ParameterId id, std::size_t i, const void* values);
  /// How many updates the parameter has had, on all ranks alike. Does not communicate.
  void set_steps(ParameterId id, std::uint64_t steps);
  /// Shards were loaded, or written to: all ranks can use them from here on. Replicas take those of
  /// replica 0, with the optimizer's state. Throws Error(mismatch) on all ranks whose steps differ.
  void share_parameters();
  /// What there is of each element, in the master type.
  enum class Kept : unsigned char { parameters, first_state, second_state };
  /// All of a unit's elements, as layout(unit) lays them out: layout(unit).full() of them.
  void gather(std::size_t unit, Kept what, void* to);

  // --- A step ---

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  /// True where the unit's gradients begin, false where they are added to those of micro-batches
  /// before.
  bool before_backward(std::size_t unit, NewGradients of = NewGradients::zeros);
  void after_backward(std::size_t unit);
  /// All elements of a parameter, of the compute type, between before_ and after_. Does not
  /// communicate.
  const void* parameter(ParameterId id) const;
  /// Where backward adds the parameter's gradient, of the gradient type, between before_backward
  /// and after_backward; zeros at first, unless that was left to the caller. Does not communicate.
  void* gradient(ParameterId id) const;

  /// Whether after_backward() reduces. False for all micro-batches of a step but the last: then
  /// gradients are added up where they are, whole, which costs stages 2 and 3 the memory that they
  /// save otherwise; or reduce each time, and only the shards are added up.
  void synchronise(bool reduces) { synchronises_ = reduces; }
  /// All gradients of the step are there, and reduced.
  void finish_backward();
  /// Of all gradients, as they are divided. `also`: other axes that parameters are sharded over.
  /// The same bits on all their ranks; infinite from 1e154 on.
  double gradient_norm(std::span<Axis* const> also = {});
  /// Scales the gradients, in the step that follows, so that their norm is at most `most`. Returns
  /// what it was; where that is not finite, step() is better left out (discard_gradients()).
  double clip_gradients(double most, std::span<Axis* const> also = {});
  /// Units without a backward since the last step stay as they are.
  void step(const Optimizer& optimizer);
  /// Instead of step().
  void discard_gradients();

  // --- What there is ---

  std::size_t units() const { return state_.units.size(); }
  const Unit& unit(std::size_t u) const { return state_.units.at(u).unit; }
  const UnitLayout& layout(std::size_t u) const { return state_.units.at(u).layout; }
  const Policy& policy() const { return state_.policy; }
  std::uint64_t steps() const { return steps_; }  // of this engine
  ShardedStatistics statistics() const;

 private:
  UnitState& at(std::size_t unit, const char* event, UnitState::Use expected);
  const UnitState& holding(ParameterId id) const;
  void nothing_in_use(const char* call) const;
  void happens(Event event);
  [[noreturn]] void report_disagreement(Event event);
  void use(UnitState& u, Event event, std::size_t ahead);
  void check_gradients(UnitState& u);
  void spread_parameters(const std::function<bool(const UnitState&)>& changed);
  void take(const Shard& mine, void* to, const void* values) const;
  void agree_on_progress();

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

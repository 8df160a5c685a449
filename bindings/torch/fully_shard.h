// Sharded data parallelism for libtorch modules: ZeRO-1, ZeRO-2, ZeRO-3 and FSDP, by policy. A unit
// is a module (a transformer block, say) whose parameters are gathered and reduced together, by
// parallel::ShardedDataParallel.
//
//     FullyShard fsdp({.shard = &axis}, *model, {{"embed", &*embed}, {"block", &*block}});
//     for (each step) {
//       Tensor h = x;                               // this rank's part of the batch
//       for (std::size_t u = 0; u < layers.size(); ++u) h = fsdp.forward(u, layers[u], h);
//       fsdp.backward(loss(h));
//       fsdp.engine().clip_gradients(1.0);
//       fsdp.engine().step(adamw);                  // of the shards that this rank has
//     }
//
// The modules' parameters remain the tensors that they were, of their sizes, but their memory is
// the engine's, and they have elements only while their unit's forward or backward runs, and in
// read_parameters(). At other times what reads or writes them (torch::save(), an optimizer of
// torch's) gets an error that says what to do; so does what reads .grad(), as gradients are in the
// engine's shards. On the way there Linear and the layers of tensor_parallel.h make them in the
// engine's memory; those of other modules are copied, after the hooks that the parameter
// has.
//
// Units may be nested, one's forward in another's body: so does a unit of all that is in no other
// (embedding and head with tied weights) stay gathered for a whole step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../parallel/sharded/sharded.h"
#include "checkpoint.h"
#include "gradient_places.h"
#include "optimizer.h"
#include "parameter_state.h"
#include "shared_tensors.h"
#include "tensors.h"

namespace tutti::libtorch {

class FullyShard {
 public:
  struct Unit {
    std::string name;
    torch::nn::Module* module;  // less the parameters of units before it
    std::optional<parallel::Reshard> reshard = std::nullopt;  // else the policy's
  };
  /// Collective. The modules' parameters become those of rank 0's shards, and replica 0's: all
  /// ranks begin with the same values (the same seed), each keeps its part.
  /// Parameters have the type `policy.precision.master`, or `compute` already, as those of layers
  /// that compute in the one type that they were made for (tensor_parallel.h). They get `compute`,
  /// and the modules' buffers `buffer`. Those that are not trained stay as they are, whole on
  /// every rank. Throws
  /// Error(mismatch) on all ranks where they differ in parameters or policy, or where some have
  /// what cannot be sharded, Error(invalid_argument) where all have that. The axes outlive it.
  FullyShard(const parallel::ShardedAxes& axes, const std::vector<Unit>& units,
             const parallel::Policy& policy = parallel::Policy::fsdp(), const Treat& treat = {});
  /// The same, of all that is in `model`: throws Error(invalid_argument), with the name, for a
  /// parameter that is trained and in none of the units, as each rank would train it by itself. A
  /// last unit of the model has what is in no other.
  FullyShard(const parallel::ShardedAxes& axes, const torch::nn::Module& model,
             const std::vector<Unit>& units,
             const parallel::Policy& policy = parallel::Policy::fsdp(), const Treat& treat = {});
  /// Parameters are without elements then, and without a way back: see restore().
  ~FullyShard();
  FullyShard(const FullyShard&) = delete;
  FullyShard& operator=(const FullyShard&) = delete;

  /// body(input), with the unit's parameters there, now and in backward. All ranks go through the
  /// units in the same order. What `body` throws ends the operation on all ranks. Nothing is done
  /// in place to the tensor that `body` gets, or to the one that comes back: torch refuses it.
  Tensor forward(std::size_t unit, const Layer& body, const Tensor& input);

  /// `loss` (a scalar): its gradients, reduced to the engine's shards. Throws Error(mismatch) on
  /// all ranks for a parameter of a unit in use that got no gradient on some rank, unless
  /// allow_unused(): engine().discard_gradients() leaves the step out. What goes wrong on one rank
  /// alone ends the operation on all.
  void backward(const Tensor& loss);
  /// The same in parts: torch's own backward, by whatever call, then end_backward(), for each
  /// micro-batch; then, once, finish().
  void end_backward();
  void finish();
  /// Calls make(), which makes gradients of these units' parameters that a backward of this step
  /// has left for later (gradient_places.h); synchronise(false) held for that one.
  void make_later(const std::vector<std::size_t>& units, const std::function<void()>& make);
  /// Parameters without a gradient count as having one of zeros.
  void allow_unused(bool allowed = true) { allow_unused_ = allowed; }
  /// Whether backward() reduces, as parallel::ShardedDataParallel::synchronise().
  void synchronise(bool reduces);
  /// Whether the modules' buffers become those of the first rank after each step, as DataParallel's
  /// do. True at first.
  void share_buffers(bool shared) { shares_buffers_ = shared; }

  // --- Parameters, whole (fully_shard_state.cpp); in all of them names are "unit.parameter", and
  // what a callback throws ends the operation on all ranks.

  /// Collective: calls `read` for each parameter, unit by unit, with all of its elements there, of
  /// the type that is computed with. They are to be read: what is written to them is lost.
  void read_parameters(const std::function<void(const NamedTensor&)>& read);
  /// Collective, between steps: calls `write` for each parameter, unit by unit, with all that
  /// training goes on from, in the master's type; then for parameters that are not trained, and
  /// buffers, as they are. The tensors are there during the call.
  void save(const WriteState& write);
  /// Collective, between steps: all those, and what `optimizer` keeps of them, become what `read`
  /// says, on all ranks alike. Training goes on with the same bits as where save() was called.
  void load(const parallel::Optimizer& optimizer, const ReadState& read);
  /// Collective: the modules have their parameters back, whole on every rank, with the master's
  /// values and the types that they had. That is the end: only the destructor may be called.
  void restore();

  /// Clips, steps, counts.
  parallel::ShardedDataParallel& engine() { return *engine_; }

 private:
  FullyShard(const parallel::ShardedAxes& axes, const torch::nn::Module* model,
             const std::vector<Unit>& units, const parallel::Policy& policy, const Treat& treat);
  friend struct ShardedEvents;
  struct Alive;
  class UnitState;
  void enter_forward(UnitState& u);
  void leave_forward(UnitState& u);
  void enter_backward(UnitState& u);
  void leave_backward(UnitState& u);
  Tensor arrived(UnitState& u, std::size_t parameter, const Tensor& gradient);
  GradientPlace place(const Tensor& parameter);
  void refuse_missing();
  void refuse_replaced(UnitState& u);
  void share_all_buffers();
  void let_go();
  std::vector<NamedTensor> others() const;
  std::vector<std::string> names() const;
  void refuse_restored(const char* call) const;
  void or_abort(const std::string& doing, const std::function<void()>& body);
  void abort(const std::string& why);

  const parallel::ShardedAxes axes_;
  std::vector<std::unique_ptr<UnitState>> units_;
  ByParameter<parallel::ParameterId> ids_;
  std::shared_ptr<const GradientPlaces> places_;
  std::unique_ptr<parallel::ShardedDataParallel> engine_;
  std::vector<NamedTensor> frozen_;
  SharedTensors buffers_{{}};
  bool allow_unused_ = false, synchronises_ = true, shares_buffers_ = true;
  c10::intrusive_ptr<Alive> alive_;
};

}  // namespace tutti::libtorch

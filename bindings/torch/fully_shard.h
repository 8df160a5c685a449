// Sharded data parallelism for libtorch modules: ZeRO-1, ZeRO-2, ZeRO-3 and FSDP, by policy. A unit
// is a module, such as a transformer block; parallel::ShardedDataParallel gathers and reduces its
// parameters together.
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
// The modules' parameters remain the same tensors with the same sizes, but their memory is the
// engine's. They have elements only while their unit's forward or backward runs, and in
// read_parameters(). At other times code that reads or writes them (torch::save(), an optimizer of
// torch's) gets an error that says what to do. So does code that reads .grad(), as gradients are in
// the engine's shards. Linear and the layers of tensor_parallel.h make gradients in the engine's
// memory; gradients of other modules are copied, after the hooks of the parameter.
//
// Units may be nested, one's forward in another's body. In this way a unit of all remaining
// parameters (embedding and head with tied weights) stays gathered for a whole step.
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
  /// Collective. All ranks begin with the same values (the same seed), and each keeps its part;
  /// replicas take the values of replica 0. Parameters have the type `policy.precision.master`, or
  /// `compute` already, as in layers that compute in a fixed type (tensor_parallel.h). They get
  /// `compute`, and the modules' buffers get `buffer`. They lie on the CPU, or on the axes' GPU, if
  /// these use a TorchGpu. Untrained parameters stay unchanged, whole
  /// on every rank. Throws Error(mismatch) on all ranks if they differ in parameters or policy, or
  /// if some have a parameter that cannot be sharded; Error(invalid_argument) if all have it. The
  /// axes outlive it.
  FullyShard(const parallel::ShardedAxes& axes, const std::vector<Unit>& units,
             const parallel::Policy& policy = parallel::Policy::fsdp(), const Treat& treat = {});
  /// Shards all of `model`: throws Error(invalid_argument), with the name, for a trained parameter
  /// in none of the units, as each rank would train it by itself. A last unit of the model itself
  /// takes all remaining parameters.
  FullyShard(const parallel::ShardedAxes& axes, const torch::nn::Module& model,
             const std::vector<Unit>& units,
             const parallel::Policy& policy = parallel::Policy::fsdp(), const Treat& treat = {});
  /// Afterwards parameters have no elements, for good; see restore().
  ~FullyShard();
  FullyShard(const FullyShard&) = delete;
  FullyShard& operator=(const FullyShard&) = delete;

  /// Computes body(input). The unit's parameters have elements now and in backward. All ranks go
  /// through the units in the same order. An exception of `body` ends the operation on all ranks.
  /// Do not change the tensor that `body` gets, or the result, in place: torch refuses it.
  Tensor forward(std::size_t unit, const Layer& body, const Tensor& input);

  /// Makes the gradients of `loss` (a scalar), and reduces them to the engine's shards. Throws
  /// Error(mismatch) on all ranks if a parameter of a unit in use got no gradient on some rank,
  /// unless allow_unused(); then engine().discard_gradients() leaves the step out. A failure on one
  /// rank alone ends the operation on all.
  void backward(const Tensor& loss);
  /// backward() in parts: torch's own backward, by whatever call, then end_backward(), for each
  /// micro-batch; then, once, finish().
  void end_backward();
  void finish();
  /// Calls make(), which makes the gradients of these units' parameters that a backward of this
  /// step, under synchronise(false), has left for later (gradient_places.h).
  void make_later(const std::vector<std::size_t>& units, const std::function<void()>& make);
  /// Parameters without a gradient count as if theirs were zeros.
  void allow_unused(bool allowed = true) { allow_unused_ = allowed; }
  /// Whether backward() reduces, as parallel::ShardedDataParallel::synchronise().
  void synchronise(bool reduces);
  /// Whether the modules' buffers become those of the first rank after each step, as DataParallel's
  /// do. True at first.
  void share_buffers(bool shared) { shares_buffers_ = shared; }

  // --- Parameters, whole (fully_shard_state.cpp); in all of them names are "unit.parameter", and
  // an exception of a callback ends the operation on all ranks.

  /// Collective: calls `read` for each parameter, unit by unit, with all of its elements, in the
  /// type of computations. Read them only: writes are lost.
  void read_parameters(const std::function<void(const NamedTensor&)>& read);
  /// Collective, between steps: calls `write` for each parameter, unit by unit, with its whole
  /// training state, in the master's type. Then it calls `write` for untrained parameters, and
  /// buffers, in their own types. The tensors are valid during the call.
  void save(const WriteState& write);
  /// Collective, between steps: sets all of these, and the states of `optimizer`, to the values of
  /// `read`, which are the same on all ranks. Training goes on with the same bits as after save().
  void load(const parallel::Optimizer& optimizer, const ReadState& read);
  /// Collective: gives the modules their parameters back, whole on every rank, with the master's
  /// values and their original types. Afterwards you may call only the destructor.
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
  c10::Device device_ = c10::kCPU;  // of the parameters
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

// A unit of FullyShard in torch: tensors with memory that comes and goes. For the files of
// FullyShard alone.
#pragma once

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fully_shard.h"

namespace tutti::libtorch {

/// Its parameters are views of one storage. The memory of that storage is the engine's, or none.
/// Graphs keep storages, through any views, so these views follow too.
class FullyShard::UnitState {
 public:
  UnitState(std::size_t place, const Unit& unit, std::vector<NamedTensor> of_it)
      : number(place), name(unit.name), parameters(std::move(of_it)), arrivals(parameters.size()) {}

  /// A gradient that arrives for parameter p goes to take(p, gradient).
  void make_views(const parallel::UnitLayout& layout, at::ScalarType type, c10::Device device,
                  const std::function<Tensor(std::size_t p, const Tensor& gradient)>& take) {
    device_ = device;
    storage_ = c10::Storage(c10::Storage::use_byte_size_t(), layout.full() * c10::elementSize(type),
                            c10::DataPtr(nullptr, device_), nullptr, false);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      Tensor& t = parameters[p].tensor;
      const Tensor view =
          at::empty({0}, at::TensorOptions().dtype(type).device(device_))
              .set_(storage_, static_cast<std::int64_t>(layout.offset(p)), t.sizes(), t.strides());
      views_.push_back(view);
      types_before_.push_back(t.scalar_type());
      const std::string what =
          fmt::format("the parameter {} of unit '{}' is in shards", parameters[p].name, name);
      hidden_.push_back(without_elements(
          t.sizes(), type,
          what +
              ", and has elements only in the forward and backward of its unit, by "
              "FullyShard::forward(): at other times save() and read_parameters() show all of it, "
              "load() changes it, and restore() ends the sharding",
          device_));
      no_gradient_.push_back(without_elements(
          t.sizes(), type,
          what +
              ", and so is its gradient: FullyShard::engine().step() makes the optimizer's step, "
              "and clip_gradients() clips; optimizers of whole tensors, as torch's and "
              "LocalOptimizer, cannot",
          device_));
      t.set_data(view);
      hooks.emplace_back(t, [take, p](const Tensor& gradient) { return take(p, gradient); });
    }
    offset_ = (parameters.empty() ? 0 : layout.offset(0)) * c10::elementSize(type);
    hide();
  }
  /// The address of the engine's first parameter.
  void show(const void* first) {
    auto* const memory = static_cast<std::byte*>(const_cast<void*>(first)) - offset_;
    storage_.set_data_ptr(c10::DataPtr(memory, device_));
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p].tensor.set_data(views_[p]);
    forget_gradients();
  }
  /// The parameters have no elements, so using them is an error, and not a read of missing memory.
  void hide() {
    storage_.set_data_ptr(c10::DataPtr(nullptr, device_));
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].tensor.set_data(hidden_[p]);
      parameters[p].tensor.mutable_grad() = no_gradient_[p];
    }
  }
  /// No later call shows them again.
  void let_go() {
    hooks.clear();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].tensor.set_data(without_elements(
          hidden_[p].sizes(), hidden_[p].scalar_type(),
          fmt::format(
              "the parameter {} of unit '{}' has gone with its FullyShard, which had shards "
              "of it: FullyShard::restore(), before, gives modules their parameters back",
              parameters[p].name, name),
          device_));
    }
    forget_gradients();
  }
  /// The first that has other memory than it was given; parameters.size(): none.
  std::size_t replaced() const {
    std::size_t p = 0;
    const auto is_ours = [&](const c10::Storage& storage) {
      return storage.unsafeGetStorageImpl() == storage_.unsafeGetStorageImpl() ||
             storage.unsafeGetStorageImpl() == hidden_[p].storage().unsafeGetStorageImpl();
    };
    while (p < parameters.size() && is_ours(parameters[p].tensor.storage())) ++p;
    return p;
  }
  at::ScalarType type_before(std::size_t p) const { return types_before_[p]; }
  void forget_gradients() {
    for (NamedTensor& p : parameters) p.tensor.mutable_grad().reset();
  }

  const std::size_t number;
  const std::string name;
  std::vector<NamedTensor> parameters;
  std::vector<GradientArrival> hooks;
  // Of each parameter: whether its gradient has arrived in this step, and since its gradients'
  // buffer began.
  struct Arrivals {
    bool ever = false, in_buffer = false;
  };
  std::vector<Arrivals> arrivals;
  bool backward = false;      // now
  bool had_backward = false;  // in this step

 private:
  c10::Device device_ = c10::kCPU;
  c10::Storage storage_;
  std::vector<Tensor> views_;                 // of it, by parameter
  std::vector<Tensor> hidden_, no_gradient_;  // by parameter: without elements
  std::vector<at::ScalarType> types_before_;
  std::size_t offset_ = 0;  // of the first parameter, in bytes
};

/// The part of a FullyShard that graphs keep: they may live longer.
struct FullyShard::Alive : torch::CustomClassHolder {
  explicit Alive(FullyShard* s) : self(s) {}
  FullyShard* self;
};

}  // namespace tutti::libtorch

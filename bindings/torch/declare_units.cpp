#include "bindings/torch/declare_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tutti::libtorch {

std::vector<NamedTensor> parameters_of_unit(const FullyShard::Unit& unit,
                                            const parallel::Policy& policy,
                                            std::vector<Tensor>& taken, c10::Device device) {
  if (unit.module == nullptr) {
    throw Error(ErrorCode::invalid_argument, fmt::format("unit '{}' has no module", unit.name));
  }
  std::vector<NamedTensor> own;
  for (NamedTensor& p : trained_parameters(*unit.module, device)) {
    if (std::ranges::any_of(taken, [&](const Tensor& t) { return t.is_same(p.tensor); })) continue;
    const DataType type = data_type(p.tensor.scalar_type(), p.name);
    if (type != policy.precision.master && type != policy.precision.compute) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("the parameter {} of unit '{}' is {}, but the policy's types are "
                      "{} and, for the master, {}",
                      p.name, unit.name, describe(p.tensor), tutti::name(policy.precision.compute),
                      tutti::name(policy.precision.master)));
    }
    taken.push_back(p.tensor);
    own.push_back(std::move(p));
  }
  return own;
}

void refuse_trained_in_no_unit(const torch::nn::Module& model, const std::vector<Tensor>& taken,
                               c10::Device device) {
  for (const NamedTensor& p : trained_parameters(model, device)) {
    if (std::ranges::any_of(taken, [&](const Tensor& t) { return t.is_same(p.tensor); })) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the parameter {} is trained, and in no unit, so each rank would train "
                            "it by itself: a last unit of the whole model has what is in no other; "
                            "its forward is around theirs",
                            p.name));
  }
}

std::vector<NamedTensor> of_units(const std::vector<FullyShard::Unit>& units,
                                  std::vector<NamedTensor> (&of)(const torch::nn::Module&)) {
  std::vector<NamedTensor> all;
  for (const FullyShard::Unit& unit : units) {
    for (NamedTensor& t : of(*unit.module)) {
      const auto is_it = [&](const NamedTensor& known) { return known.tensor.is_same(t.tensor); };
      if (std::ranges::any_of(all, is_it)) continue;
      all.push_back({unit.name + "." + t.name, std::move(t.tensor)});
    }
  }
  return all;
}

parallel::Unit declared_unit(const FullyShard::Unit& unit,
                             const std::vector<NamedTensor>& parameters, const Treat& treat) {
  parallel::Unit declared;
  declared.name = unit.name;
  declared.reshard = unit.reshard;
  for (const NamedTensor& p : parameters) {
    const auto count = static_cast<std::size_t>(p.tensor.numel());
    const Treatment treatment = treat ? treat(p) : Treatment();
    // Shape and type are compared too, as parts of the name.
    declared.parameters.push_back(
        {.name = p.name + " " + describe(p.tensor),
         .count = count,
         .rows = count > 0 && p.tensor.dim() > 0 ? static_cast<std::size_t>(p.tensor.size(0)) : 1,
         .weight_decay = treatment.weight_decay,
         .in_norm = treatment.in_norm});
  }
  return declared;
}

}  // namespace tutti::libtorch

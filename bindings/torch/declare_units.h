// FullyShard's reading of a module: the parameters of a unit, and their declarations for the
// engine.
#pragma once

#include <vector>

#include "fully_shard.h"

namespace tutti::libtorch {

/// The trained parameters of a unit, without those of earlier units, which are in `taken`; adds
/// them to it. Throws Error(invalid_argument), with the parameter and the unit, for a parameter
/// that this policy cannot shard, or that is not on `device`.
std::vector<NamedTensor> parameters_of_unit(const FullyShard::Unit& unit,
                                            const parallel::Policy& policy,
                                            std::vector<Tensor>& taken, c10::Device device);
/// Throws Error(invalid_argument), with the name, for a trained parameter of the model that is in
/// no unit.
void refuse_trained_in_no_unit(const torch::nn::Module& model, const std::vector<Tensor>& taken,
                               c10::Device device);
/// The buffers of all units, for instance, each once, as "unit.buffer".
std::vector<NamedTensor> of_units(const std::vector<FullyShard::Unit>& units,
                                  std::vector<NamedTensor> (&of)(const torch::nn::Module&));
parallel::Unit declared_unit(const FullyShard::Unit& unit,
                             const std::vector<NamedTensor>& parameters, const Treat& treat);

}  // namespace tutti::libtorch

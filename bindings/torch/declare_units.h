// What FullyShard takes from a module: the parameters of a unit, and how the engine has them.
#pragma once

#include <vector>

#include "fully_shard.h"

namespace tutti::libtorch {

/// The trained parameters of a unit, less those of units before it, which `taken` has; they are
/// added to it. Throws Error(invalid_argument), with the parameter and the unit, for one that
/// cannot be sharded by this policy.
std::vector<NamedTensor> parameters_of_unit(const FullyShard::Unit& unit,
                                            const parallel::Policy& policy,
                                            std::vector<Tensor>& taken);
/// Throws Error(invalid_argument), with the name, for a parameter of the model that is trained, and
/// in no unit.
void refuse_trained_in_no_unit(const torch::nn::Module& model, const std::vector<Tensor>& taken);
/// Buffers of all units, say, each once, as "unit.buffer".
std::vector<NamedTensor> of_units(const std::vector<FullyShard::Unit>& units,
                                  std::vector<NamedTensor> (&of)(const torch::nn::Module&));
parallel::Unit declared_unit(const FullyShard::Unit& unit,
                             const std::vector<NamedTensor>& parameters, const Treat& treat);

}  // namespace tutti::libtorch

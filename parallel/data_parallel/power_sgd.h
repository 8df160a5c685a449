// PowerSGD (T. Vogels, S. P. Karimireddy, M. Jaggi: PowerSGD: Practical Low-Rank Gradient
// Compression for Distributed Optimization, 2019): gradients are averaged as products of two narrow
// matrices.
#pragma once

#include <memory>
#include <span>

#include "reduction.h"

namespace tutti::parallel {

/// Whether PowerSGD compresses the gradients of `parameter`: a matrix of float32 that becomes
/// smaller.
bool compresses(const PowerSgd& policy, const Parameter& parameter);

std::unique_ptr<Reduction> make_power_sgd(const PowerSgd& policy,
                                          std::span<const Parameter> parameters,
                                          MemoryPool& memory);

}  // namespace tutti::parallel

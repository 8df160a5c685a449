// Gradients that travel in 8 bits: compressed all-reduces (Call::compressed), and what they leave
// out.
#pragma once

#include <memory>

#include "reduction.h"

namespace tutti::parallel {

/// Buckets of types that have no compressed form are averaged as they are. `parameters` outlives
/// it; `ranks` average them.
std::unique_ptr<Reduction> make_eight_bits(const EightBits& policy,
                                           std::span<const Parameter> parameters, int ranks,
                                           MemoryPool& memory);

}  // namespace tutti::parallel

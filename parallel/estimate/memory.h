// The bytes of a rank's memory, by kind, at the moment of a step when it has the most.
#pragma once

#include <cstdint>

#include "mix.h"

namespace tutti::parallel::estimate {

struct MemoryByKind {
  double parameters = 0;  // of the compute type, and the master where it is another one
  double gradients = 0;
  double optimizer = 0;    // its states
  double in_use = 0;       // units that are gathered or reduced at a time, keys in a ring, and rows
                           // on their way to experts
  double activations = 0;  // of the micro-batches under way
  double logits = 0;       // and their gradient

  double state() const { return parameters + gradients + optimizer; }
  double total() const { return state() + in_use + activations + logits; }
};

/// What the engine of the data axis holds: MemoryByKind without activations and logits.
MemoryByKind engine_memory(const Mix& mix, const std::vector<HeldUnit>& units);

/// Of a rank of this stage, with the schedule 1F1B: the first stage has as many micro-batches under
/// way as there are stages. Attention keeps no scores (as FlashAttention does).
MemoryByKind memory(const Mix& mix, const Model& model, int stage);

/// The memory of the stage that has the most.
MemoryByKind most_memory(const Mix& mix, const Model& model);

}  // namespace tutti::parallel::estimate

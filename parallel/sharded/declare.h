// Whether all ranks have declared the same model, and the same policy, and something that can be.
#pragma once

#include <vector>

#include "../agreement.h"
#include "policy.h"
#include "state.h"
#include "unit.h"

namespace tutti::parallel {

/// Throws the same on all ranks: mismatch, with what differs and on which rank; or, where all have
/// declared the same, but it cannot be, invalid_argument.
void agree_on_declarations(Agreement ranks, const std::vector<Unit>& units, const Policy& policy,
                           const ShardedAxes& axes);

}  // namespace tutti::parallel

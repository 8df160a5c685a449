// Checks that all ranks have declared the same model and the same policy, and that both are
// possible.
#pragma once

#include <vector>

#include "../agreement.h"
#include "policy.h"
#include "state.h"
#include "unit.h"

namespace tutti::parallel {

/// Throws the same on all ranks: mismatch, with the difference and the rank; or invalid_argument if
/// all have declared the same impossible thing.
void agree_on_declarations(Agreement ranks, const std::vector<Unit>& units, const Policy& policy,
                           const ShardedAxes& axes);

}  // namespace tutti::parallel

// The rank that makes a NaN sees it first, and soon all ranks have it: this tells all ranks where
// the first ones were. An engine's own check_finite does so on its axis alone; this is for jobs of
// several axes.
#pragma once

#include <string_view>

#include "axis.h"

namespace tutti::parallel {

/// Collective over `world`. `found`: a value of this rank that is not finite ("the gradient of
/// block0.up.weight"); empty if all are finite. Returns if it is empty on all ranks. Otherwise all
/// throw Error(invalid_argument), which names the values and their ranks. `where`: "step 12". Costs
/// an all-reduce of 8 bytes while all values are finite.
void refuse_not_finite(Axis& world, std::string_view where, std::string_view found);

}  // namespace tutti::parallel

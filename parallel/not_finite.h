// A NaN is seen by the rank that makes it, and soon by all: the ranks say where theirs were seen
// first. An engine's own check_finite does so on its axis alone; this is for jobs of several axes.
#pragma once

#include <string_view>

#include "axis.h"

namespace tutti::parallel {

/// Collective over `world`. `found`: what this rank has that is not finite ("the gradient of
/// block0.up.weight"); empty where all is well. Returns where that is so on all ranks; otherwise
/// all throw Error(invalid_argument), which names what was found on which ranks. `where`: "step
/// 12". While all is well, an all-reduce of 8 bytes.
void refuse_not_finite(Axis& world, std::string_view where, std::string_view found);

}  // namespace tutti::parallel

// Which algorithm runs a call, where the user did not say.
#pragma once

#include <cstddef>

#include "collectives/algorithms.h"

namespace tutti {

/// `bytes`: of the largest buffer of the call, over all its blocks. `windows`: whether algorithms
/// that address other ranks' memory may be taken. Depends on nothing else, so all ranks choose
/// alike.
const Algorithm& choose_algorithm(Collective collective, int ranks, std::size_t bytes,
                                  bool windows);

}  // namespace tutti

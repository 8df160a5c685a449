// Broadcast of many pieces of memory, such as a model's parameters, from one rank to all others of
// an axis.
#pragma once

#include <cstddef>
#include <span>

#include "axis.h"

namespace tutti::parallel {

/// Collective, with pieces of the same sizes on all ranks: they become those of `root`. Large
/// pieces, and those on a GPU, are sent in place, small ones together.
void broadcast_all(Axis& axis, std::span<const std::span<std::byte>> pieces, int root);

}  // namespace tutti::parallel

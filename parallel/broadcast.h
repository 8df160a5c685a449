// Many pieces of memory, a model's parameters say, from one rank to all others of an axis.
#pragma once

#include <cstddef>
#include <span>

#include "axis.h"

namespace tutti::parallel {

/// Collective, with pieces of the same sizes on all ranks: they become those of `root`. Large ones
/// are sent from where they are, small ones together.
void broadcast_all(Axis& axis, std::span<const std::span<std::byte>> pieces, int root);

}  // namespace tutti::parallel

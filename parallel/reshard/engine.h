// The layout, and the memory, of a live ShardedDataParallel: weights go out of the engine, or into
// it, while it trains.
#pragma once

#include <span>
#include <vector>

#include "../sharded/sharded.h"
#include "layout.h"

namespace tutti::parallel::reshard {

/// Adds the engine's parameters, of its master type, as its ranks hold them. `tensors`: what each
/// parameter is, unit by unit in the order of the declarations; their names are those of the
/// buffers. `ranks`: by rank of the engine's shard axis, that of the layout; with replicas call it
/// for each of them. Does not communicate. Throws Error(invalid_argument) for tensors that are not
/// the engine's parameters.
void add_engine(Layout& layout, const ShardedDataParallel& engine, std::span<const Tensor> tensors,
                std::span<const int> ranks);

/// Where this rank has them: by buffer of a layout that add_engine() has filled; null for all that
/// is not here, or not the engine's. The memory stays the engine's. It may be read between steps;
/// whoever has written there calls share_parameters().
std::vector<void*> memory_of(const Layout& layout, const ShardedDataParallel& engine,
                             std::span<const Tensor> tensors);

}  // namespace tutti::parallel::reshard

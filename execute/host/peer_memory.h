// How a rank finds and reaches the memory of another rank of its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/rank_group.h"

namespace tutti {

/// This process's mapping of `window` of rank `peer`, which has told of it; waits until that has
/// come. Throws Error.
std::shared_ptr<SharedMemory> wait_for_window(RankGroup& group, int peer, std::uint32_t window);

/// Has the kernel copy `bytes` to address `to` in the process of rank `peer`. Throws Error:
/// peer_lost where that process is gone, system where the kernel refuses.
void write_plain_memory(RankGroup& group, int peer, const void* from, std::uint64_t to,
                        std::size_t bytes);

}  // namespace tutti

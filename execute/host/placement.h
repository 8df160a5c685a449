// Puts ranks on cores: where there are more ranks than cores, and where two ranks have begun on
// one.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/control_blocks.h"
#include "transport/members.h"

namespace tutti {

/// Says on which core this rank is about to wait (ControlBlock::core) and returns that.
std::uint32_t publish_core(ControlBlock& own);

/// Moves this thread to a core with fewer ranks of the communicator, if its own has at least two
/// more and no higher rank of them could go instead; its affinity stays as it is. The kernel's
/// balancer leaves ranks alone that hand a core to each other every microsecond, because they never
/// get cold: four ranks on one of two cores stayed there for seconds, and took 5.7 us for 8 bytes
/// instead of 2.0; two ranks that begin on one of two cores stay there, too, and take 10 us instead
/// of 0.2. Does something at most every 50 ms, at first until all ranks have waited once; `now`:
/// the time.
void spread_out(const Members& members, ControlBlocks& blocks,
                std::chrono::steady_clock::time_point now);

}  // namespace tutti

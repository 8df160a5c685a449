// The necessary reads and writes of a collective, as a list of ranges: it writes each output byte
// once, from the inputs that the byte depends on. No protocol, no library: the floor that the
// memory sets.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "laboratory/peers/loop.h"

namespace tutti::peers {

/// destinations[.] <- the sum of sources (or the source, if there is one), over `bytes` bytes.
struct Move {
  std::vector<std::byte*> destinations;
  std::vector<const std::byte*> sources;
  std::size_t bytes = 0;
};

/// The start of a rank's buffer in this process.
using Address = std::function<std::byte*(int rank)>;

/// The moves with which every rank makes its own result.
std::vector<Move> own_result(const Job& job, const Address& in, const Address& out);

/// The moves of this rank if the ranks divide the work evenly, so that no input is read twice.
/// broadcast, reduce and all_reduce only gain by it; the others are the same as own_result().
std::vector<Move> fair_share(const Job& job, const Address& in, const Address& out);

/// One plain loop over the range. Streaming: stores go past the cache. Sums are of float32.
void run(const Move& move, bool streaming);

}  // namespace tutti::peers

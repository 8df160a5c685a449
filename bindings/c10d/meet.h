// Over torch's Store, the ranks of a group meet, and look for ranks that do not come.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace tutti::pytorch {

/// Of a communicator with that timeout; its ranks also meet within it. `invariant`: none is as
/// TUTTI_INVARIANT says.
Options options_of(std::chrono::milliseconds timeout, std::optional<bool> invariant = {});

/// Rank 0 makes the id, with the secret, and takes it from the store when all have met.
Communicator meet(::c10d::Store& store, int rank, int size, const Options& options);

/// The `number`-th monitored barrier: rank 0 names the ranks that have not come, all of them
/// (`all`) or the first. Throws DistBackendError.
void monitored_barrier(::c10d::Store& store, int rank, int size, std::uint64_t number,
                       std::chrono::milliseconds timeout, bool all);

}  // namespace tutti::pytorch

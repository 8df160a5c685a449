// How rank 0 hands the unique id to the other ranks on its host when the launcher cannot: over an
// abstract unix socket that nobody has to clean up. Its name follows from the user and the job;
// either end checks that the other belongs to the same user, as any user may take a name.
#pragma once

#include <chrono>
#include <string>

#include "bootstrap/unique_id.h"
#include "transport/socket.h"

namespace tutti {

/// Where this user's job of that name hands out its id.
SocketAddress handover_address(const std::string& job);

/// Rank 0: a thread gives `id` to each of the ranks 1 to size - 1, once, until `timeout` is over.
/// Returns when the socket is there. Throws Error(timed_out) where another process keeps the name.
void offer_unique_id(const std::string& job, int size, const UniqueId& id,
                     std::chrono::nanoseconds timeout);

/// The other ranks: waits for rank 0. Throws Error(timed_out), or Error(mismatch) where rank 0 has
/// another size.
UniqueId fetch_unique_id(const std::string& job, int rank, int size,
                         std::chrono::nanoseconds timeout);

}  // namespace tutti

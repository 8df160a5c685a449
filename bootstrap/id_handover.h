// How rank 0 hands the unique id to the other ranks on its host when the launcher cannot: over an
// abstract unix socket, which needs no cleanup. Its name follows from the user and the job. Either
// end checks that the other belongs to the same user, as any user may take a name.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "bootstrap/unique_id.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// The address at which this user's job of that name hands out its id; no other name has it.
SocketAddress handover_address(const std::string& job);

/// Rank 0: a thread gives `id` to each of the ranks 1 to size - 1, once, until `timeout` is over.
/// Returns when the socket exists. Throws Error(timed_out) if another process keeps the name.
void offer_unique_id(const std::string& job, int size, const UniqueId& id,
                     std::chrono::nanoseconds timeout);

/// Why the process of this host that offers an id under the job's name is none whose id this rank
/// wants; "": it wants it.
using WhyNot = std::function<std::string(pid_t)>;

/// Gets the id at the other ranks: waits for rank 0, or for the next one where `why_not` has a
/// reason. Throws Error(timed_out), or Error(mismatch) if rank 0 has another size.
UniqueId fetch_unique_id(const std::string& job, int rank, int size,
                         std::chrono::nanoseconds timeout, const WhyNot& why_not = {});

}  // namespace tutti

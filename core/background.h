// Threads that nobody waits for, as those that serve other ranks for a while. A process that exits
// stops them and joins them, so they never run while the library is taken down. A forked child does
// not have them and does not wait for them.
#pragma once

#include <functional>
#include <string_view>

namespace tutti {

/// Runs `body` on a thread called `name` with all signals blocked. `body` gets a descriptor that
/// becomes readable when the process exits; it must then return soon (2 s). Exceptions that escape
/// `body` are logged.
void run_in_background(std::string_view name, std::function<void(int stop_fd)> body);

}  // namespace tutti

// When a process started: what tells it from others that had the same number before.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace tutti {

/// In clock ticks since the host was booted, as the kernel writes it; "?" where it does not say.
std::string start_ticks(pid_t pid);

/// Of this process, by this host's clock; now, where the kernel does not say.
std::chrono::system_clock::time_point process_start();

}  // namespace tutti

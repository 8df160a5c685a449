// When a process started. This distinguishes it from earlier processes with the same number.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace tutti {

/// In clock ticks since the host was booted, as the kernel writes it; "?" if it does not say.
std::string start_ticks(pid_t pid);

/// Of this process, by this host's clock; now, if the kernel does not say.
std::chrono::system_clock::time_point process_start();

}  // namespace tutti

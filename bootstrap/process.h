// What the kernel says of a process of this host: when it started, who started it, by which command
// and in which environment. Launchers name too little to tell one launch from another; this does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace tutti {

/// In clock ticks since the host was booted, as the kernel writes it; "?" if it does not say.
/// This distinguishes a process from earlier ones with the same number.
std::string start_ticks(pid_t pid);

/// How long ago it started, to a hundredth of a second; zero if the kernel does not say.
std::chrono::milliseconds age_of(pid_t pid);
/// When this process started, by this host's clock; now, if the kernel does not say.
std::chrono::system_clock::time_point process_start();

/// The parent of `pid`, its parent, and so on; without the first process of the host or container.
std::vector<pid_t> ancestors_of(pid_t pid);

/// The file that `pid` executes, and its arguments as it got them; empty if the kernel does not
/// say, or where it has ended.
std::vector<std::string> command_of(pid_t pid);
/// Variables, as "NAME=value".
using Entries = std::set<std::string, std::less<>>;
/// The variables with which `pid` began; empty if the kernel does not say: of another user's
/// process, for instance.
Entries environment_of(pid_t pid);

}  // namespace tutti

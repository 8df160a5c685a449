// What memory there is: the host's, or what a control group (a container, a batch system's job)
// leaves of it. Windows that are not written to yet cost nothing, so a size that cannot be fails
// nowhere: the kernel ends a process when it has filled the memory. So sizes are compared before.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

struct HostMemory {
  static constexpr std::uint64_t kUnknown = std::uint64_t{1} << 62;

  std::uint64_t total = kUnknown;      // bytes that this process may have at most, swap included
  std::uint64_t available = kUnknown;  // of which nobody has anything that is needed
  std::uint64_t domain = 0;            // the same for processes that share them
};

/// As it is now. `root`: a folder in the place of "/", for tests.
HostMemory host_memory(const std::string& root = "");

/// "23.5 GiB".
std::string memory_text(double bytes);

}  // namespace tutti

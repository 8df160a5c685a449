// The available memory: the host's, or the part of it that a control group (a container, a batch
// system's job) allows. Windows without a write yet cost nothing, so allocating too much fails
// nowhere: the kernel ends the process once it has filled the memory. So Tutti compares sizes
// before it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti {

struct HostMemory {
  static constexpr std::uint64_t kUnknown = std::uint64_t{1} << 62;

  std::uint64_t total = kUnknown;      // bytes that this process may have at most, swap included
  std::uint64_t available = kUnknown;  // bytes that no process needs
  std::uint64_t domain = 0;            // equal for processes that share this memory
};

/// The present state. `root`: a folder that replaces "/", for tests.
HostMemory host_memory(const std::string& root = "");

/// Throws Error(system) where files, and with them memory that processes share, may not be so long
/// (`ulimit -f`): the kernel would end this process. Ask before a memfd gets its length.
void check_file_limit(std::uint64_t bytes);

/// The bytes of a page.
std::size_t page_bytes();

/// "23.5 GiB".
std::string memory_text(double bytes);

}  // namespace tutti

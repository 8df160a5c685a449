#include "transport/host/cma.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "core/error.h"

namespace tutti {
namespace {

// The kernel moves at most 0x7ffff000 bytes in a call; a round number below it keeps pages whole.
constexpr std::size_t kMost = std::size_t{1} << 30;

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                             unsigned long);

void copy(Transfer transfer, const char* what, pid_t pid, void* local, std::uint64_t remote,
          std::size_t bytes) {
  auto* p = static_cast<std::byte*>(local);
  while (bytes > 0) {
    const std::size_t piece = std::min(bytes, kMost);
    const iovec here{p, piece};
    const iovec there{reinterpret_cast<void*>(remote), piece};  // NOLINT: an address elsewhere
    const ssize_t moved = transfer(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) {
      if (moved < 0 && errno == EINTR) continue;
      throw_system_error(std::string("cannot ") + what + " memory of process " +
                         std::to_string(pid));
    }
    p += moved;
    remote += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
}

}  // namespace

void cma_read(pid_t pid, void* local, std::uint64_t remote, std::size_t bytes) {
  copy(process_vm_readv, "read", pid, local, remote, bytes);
}

void cma_write(pid_t pid, const void* local, std::uint64_t remote, std::size_t bytes) {
  copy(process_vm_writev, "write", pid, const_cast<void*>(local), remote, bytes);
}

bool cma_probe(pid_t pid, std::uint64_t remote, std::uint64_t expected) {
  std::uint64_t value = 0;
  const iovec here{&value, sizeof value};
  const iovec there{reinterpret_cast<void*>(remote), sizeof value};  // NOLINT: an address elsewhere
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof value && value == expected;
}

}  // namespace tutti

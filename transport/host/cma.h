// Bulk copies between this process and another one's plain memory, by process_vm_readv and
// process_vm_writev ("cross-memory attach"). Needs the same user and ptrace permission; a probe
// finds out once whether it works.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Copies all of `bytes`; throws Error(system) naming `pid` when the kernel refuses or the process
/// is gone.
void cma_read(pid_t pid, void* local, std::uint64_t remote, std::size_t bytes);
void cma_write(pid_t pid, const void* local, std::uint64_t remote, std::size_t bytes);

/// Whether eight bytes at `remote` in `pid` can be read and hold `expected`.
bool cma_probe(pid_t pid, std::uint64_t remote, std::uint64_t expected);

}  // namespace tutti

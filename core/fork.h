// What a library with threads, sockets and shared memory must know of fork(): the child has a copy
// of all memory, shares descriptors and mappings with its parent, and has none of its threads. What
// was made before belongs to the parent; a child lets it be.
#pragma once

#include <cstdint>

namespace tutti {

/// Differs between a process and its children, and is otherwise constant: what was made in another
/// generation belongs to an ancestor. One load.
std::uint32_t process_generation() noexcept;

/// How often this process has called fork() so far, or is about to: memory that was mapped before
/// the newest one may be in use by a child.
std::uint32_t forks_so_far() noexcept;

/// Holds a lock while another thread forks, so that the child finds what it guards consistent.
/// `lock` and `unlock` are called around each fork() from now on. Call it once for each lock, before
/// anybody takes it; those that were named first are locked last.
void hold_across_fork(void (*lock)(), void (*unlock)());

}  // namespace tutti

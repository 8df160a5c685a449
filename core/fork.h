// What a library with threads, sockets and shared memory must know of fork(): the child has a copy
// of all memory, shares descriptors and mappings with its parent, and has none of its threads. What
// was made before belongs to the parent; a child lets it be.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tutti {

namespace detail {
extern constinit std::atomic<std::uint32_t> process_generation;
}

/// Differs between a process and its children, and is otherwise constant: what was made in another
/// generation belongs to an ancestor. One load.
inline std::uint32_t process_generation() noexcept {
  // relaxed: fork() itself orders what the child sees.
  return detail::process_generation.load(std::memory_order_relaxed);
}

/// How often this process has called fork() so far, or is about to: memory that was mapped before
/// the newest one may be in use by a child.
std::uint32_t forks_so_far() noexcept;

/// Holds a lock while another thread forks, so that the child finds what it guards consistent.
/// `lock` and `unlock` are called around each fork() from now on. Call it once for each lock,
/// before anybody takes it; those that were named first are locked last.
void hold_across_fork(void (*lock)(), void (*unlock)());

/// Keeps what a child has a copy of and can neither use nor destroy, as an object that waits for a
/// thread which is not there.
void abandon(std::shared_ptr<void> what);

}  // namespace tutti

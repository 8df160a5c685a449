// Support for fork(). A child has a copy of all memory, shares descriptors and mappings with its
// parent, and has none of its threads. Objects from before the fork belong to the parent; a child
// leaves them alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tutti {

namespace detail {
extern constinit std::atomic<std::uint32_t> process_generation;
}

/// A number that differs between a process and its children, and is otherwise constant. An object
/// of another generation belongs to an ancestor. Costs one load.
inline std::uint32_t process_generation() noexcept {
  // relaxed: fork() itself orders what the child sees.
  return detail::process_generation.load(std::memory_order_relaxed);
}

/// How often this process has called fork() so far, or is about to. A child may use memory that was
/// mapped before the newest fork.
std::uint32_t forks_so_far() noexcept;

/// Holds a lock while another thread forks, so that the child finds the guarded data consistent.
/// From now on `lock` and `unlock` run around each fork(). Call this once for each lock, before any
/// thread takes the lock. The locks that were named first are locked last.
void hold_across_fork(void (*lock)(), void (*unlock)());

/// Keeps an object that a child has a copy of and can neither use nor destroy: an object that waits
/// for a thread which the child does not have.
void abandon(std::shared_ptr<void> what);

}  // namespace tutti

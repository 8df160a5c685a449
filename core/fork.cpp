// See fork.h.
#include "core/fork.h"

#include <pthread.h>

#include <atomic>

namespace tutti {
namespace {

struct Counts {
  std::atomic<std::uint32_t> generation{0};
  std::atomic<std::uint32_t> forks{0};
};

constinit Counts counts;

[[maybe_unused]] const int registered = pthread_atfork(
    [] { counts.forks.fetch_add(1, std::memory_order_relaxed); }, nullptr,
    [] { counts.generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

// relaxed, both: fork() itself orders what the child sees.
std::uint32_t process_generation() noexcept {
  return counts.generation.load(std::memory_order_relaxed);
}

std::uint32_t forks_so_far() noexcept { return counts.forks.load(std::memory_order_relaxed); }

void hold_across_fork(void (*lock)(), void (*unlock)()) { pthread_atfork(lock, unlock, unlock); }

}  // namespace tutti

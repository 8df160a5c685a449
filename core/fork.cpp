// See fork.h.
#include "core/fork.h"

#include <pthread.h>

#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

constinit std::atomic<std::uint32_t> detail::process_generation{0};

namespace {

constinit std::atomic<std::uint32_t> forks{0};

[[maybe_unused]] const int registered =
    pthread_atfork([] { forks.fetch_add(1, std::memory_order_relaxed); }, nullptr,
                   [] { detail::process_generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t forks_so_far() noexcept { return forks.load(std::memory_order_relaxed); }

void hold_across_fork(void (*lock)(), void (*unlock)()) { pthread_atfork(lock, unlock, unlock); }

void abandon(std::shared_ptr<void> what) {
  static auto* const mutex = new std::mutex;
  static auto* const abandoned = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(*mutex);
  abandoned->push_back(std::move(what));
}

}  // namespace tutti

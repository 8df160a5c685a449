#include "transport/host/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

namespace tutti::detail {
namespace {

std::uint32_t* word(Doorbell& doorbell) {
  return reinterpret_cast<std::uint32_t*>(&doorbell.rings);
}

}  // namespace

void ring_now(Doorbell& doorbell) {
  if (RemoteDoorbell* const far = remote(doorbell)) return far->rung();
  doorbell.rings.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, word(doorbell), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void sleep_now(std::span<Doorbell* const> doorbells, std::span<const std::uint32_t> seen,
               std::chrono::nanoseconds most) {
  if (doorbells.size() > 1) {
    std::array<futex_waitv, kMostBells> waits{};
    for (std::size_t b = 0; b < doorbells.size(); ++b) {
      waits[b].val = seen[b];
      waits[b].uaddr = reinterpret_cast<std::uint64_t>(word(*doorbells[b]));
      waits[b].flags = FUTEX_32;
    }
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += most.count();
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    if (syscall(SYS_futex_waitv, waits.data(), doorbells.size(), 0, &until, CLOCK_MONOTONIC) >= 0 ||
        errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) {
      return;
    }
    // Before Linux 5.16, and where a sandbox refuses the call, the first doorbell alone is heard.
  }
  const timespec time{0, most.count()};
  syscall(SYS_futex, word(*doorbells[0]), FUTEX_WAIT, seen[0], &time, nullptr, 0);
}

}  // namespace tutti::detail

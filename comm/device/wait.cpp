#include "comm/device/wait.h"

#include <fmt/format.h>

#include <thread>

#include "collectives/execute/signature.h"

namespace tutti {

void DeviceWait::pause(int rank) {
  const auto now = Clock::now();
  if (now >= next_look_) {
    next_look_ = now + std::chrono::milliseconds(10);
    group_.check_peers(fmt::format("waiting for rank {} to {}", rank, what_));
    compare_with_peers(group_, &ControlBlock::device_records);
    if (group_.failed()) group_.throw_failure();
    if (group_.has_left(rank)) {
      throw Error(ErrorCode::peer_lost,
                  fmt::format("rank {} has left the communicator (destroyed it, or ended) while "
                              "rank {} was waiting for it to {}",
                              rank, group_.rank(), what_),
                  rank);
    }
    if (timeout_.count() > 0 && now - began_ > timeout_) {
      throw Error(
          ErrorCode::timed_out,
          fmt::format("rank {} has waited for rank {} to {}: the time-out of {:.1f} s has "
                      "passed (TUTTI_TIMEOUT)",
                      group_.rank(), rank, what_, std::chrono::duration<double>(timeout_).count()),
          rank);
    }
  }
  // The others answer at once if they are there; else nothing is lost by sleeping.
  if (++pauses_ < 100) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace tutti

#include "device/wait.h"

#include <fmt/format.h>

#include <thread>

#include "collectives/execute/signature.h"
#include "core/background.h"
#include "core/log.h"

namespace tutti {

void DeviceWait::pause(int rank) {
  const auto now = Clock::now();
  if (now >= next_look_) {
    next_look_ = now + std::chrono::milliseconds(10);
    group_.liveness().check_peers(fmt::format("waiting for rank {} to {}", rank, what_));
    compare_with_peers(group_, CallsOn::gpu);
    group_.liveness().throw_if_failed();
    if (group_.liveness().has_left(rank)) {
      throw Error(ErrorCode::peer_lost,
                  fmt::format("rank {} has left the communicator (destroyed it, or ended) while "
                              "rank {} was waiting for it to {}{}. Restart the job, or go on "
                              "without that rank (shrink)",
                              rank, group_.rank(), what_, group_.diagnostics().refusal_text(rank)),
                  rank);
    }
    const auto waited = now - began_;
    const auto report = [&](std::chrono::duration<double> seconds) {
      return fmt::format(
          "rank {} has waited {:.1f} s for rank {} to {}; that rank's newest collective on GPU "
          "memory is {}",
          group_.rank(), seconds.count(), rank, what_,
          newest_text(group_.control(rank), CallsOn::gpu));
    };
    if (policy_.timeout.count() > 0 && waited > policy_.timeout) {
      throw Error(
          ErrorCode::timed_out,
          fmt::format("{}: the timeout of {:.1f} s has passed (TUTTI_TIMEOUT)", report(waited),
                      std::chrono::duration<double>(policy_.timeout).count()),
          rank);
    }
    if (!reported_ && policy_.report_after.count() > 0 && waited > policy_.report_after) {
      reported_ = true;
      log().warn("{}; still waiting", report(waited));
    }
  }
  // The others answer at once if they are there; else nothing is lost by sleeping.
  if (++pauses_ < 100) {
    std::this_thread::yield();
  } else {
    pause_for(std::chrono::microseconds(100));
  }
}

}  // namespace tutti

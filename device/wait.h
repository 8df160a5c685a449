// How a thread of the host waits for what another process does on its host: with pauses, and ways
// out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/execute/host/wait.h"
#include "transport/rank_group.h"

namespace tutti {

class DeviceWait {
 public:
  /// `what`: is waited for, as in "rank 2 has waited for rank 3 to <what>". `policy`, of which the
  /// time-out and the time of a report count, outlives this.
  DeviceWait(RankGroup& group, const WaitPolicy& policy, std::string what)
      : group_(group), policy_(policy), what_(std::move(what)) {}

  /// Between two looks at something that rank `rank` has not done yet. Throws Error: peer_lost,
  /// timed_out, mismatch, or what has failed the communicator.
  void pause(int rank);

 private:
  using Clock = std::chrono::steady_clock;

  RankGroup& group_;
  const WaitPolicy& policy_;
  std::string what_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point next_look_ = began_;
  std::uint32_t pauses_ = 0;
  bool reported_ = false;
};

}  // namespace tutti

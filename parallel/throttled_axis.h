// An axis over a slow link, for tests and benchmarks: its operations take as long as on a link of a
// given rate, whatever lies beneath, and compute nothing. So overlap, bubbles and crossover points
// can be seen on a machine of few cores.
//
// A rank has one link, in each direction. An operation holds it for the link's latency and the time
// that its bytes take (as Traffic counts them), after the operations before it. Then it really
// begins, so it is over when the time of the last rank is over. A receive begins at once: the
// sender pays.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "axis.h"

namespace tutti::parallel {

class ThrottledAxis final : public Axis {
 public:
  struct LinkSpeed {
    double bytes_per_second = 1e9;
    std::chrono::nanoseconds latency{0};
  };
  /// Has a thread of its own. Nobody else may use `beneath` (or its communicator) while this object
  /// lives. The destructor waits for the time of started operations, not for their results.
  ThrottledAxis(Axis& beneath, LinkSpeed speed);
  ~ThrottledAxis() override;

  /// How long an operation holds the link.
  std::chrono::nanoseconds time_of(const Call& call) const;

 private:
  class Delayed;
  std::unique_ptr<Pending::Work> begin(const Call& call) override;
  void work();

  Axis& beneath_;
  std::mutex beneath_mutex_;  // held while a thread starts an operation there
  const LinkSpeed speed_;
  std::chrono::steady_clock::time_point free_;  // when the link is free
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Delayed>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tutti::parallel

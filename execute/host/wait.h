// Wait: what a thread does from the moment that none of its jobs can go on. It spins briefly,
// then yields the core, if other ranks may need it, or spins on, then sleeps in the kernel; and
// looks around now and then (peer_wait.h).
#pragma once

#include <atomic>
#include <chrono>
#include <span>

#include "execute/host/job.h"

namespace tutti {

/// Whether more threads of this process wait for other hosts than there are cores. Then a thread
/// that looks again and again takes the time of those that have something to do, such as the
/// network's.
bool outnumber_cores();

/// Whether a counter of `wanted` is not 0.
inline bool is_any(Wanted wanted) {
  for (const std::atomic<int>* const counter : wanted) {
    if (counter->load(std::memory_order_relaxed) > 0) return true;
  }
  return false;
}

/// One wait: until one of `pending` can go on, `source` has more, or it is `wanted` elsewhere.
class Wait {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Wait(std::span<Job* const> pending, const JobSource* source = nullptr,
                Wanted wanted = {});
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  /// Looks once, and lets some time pass. Throws Error once a communicator has failed.
  void once();
  bool is_over();
  /// Whether that was so, or `source` lets go, when this thread last had time to look.
  bool lets_go() const { return lets_go_; }
  /// What is done now and then for each job that does not move, whether others do or not.
  void look_after(Clock::time_point now);
  /// The job that the functions above were busy with when they threw.
  Job& concerned() const { return *concerned_; }

 private:
  bool should_let_go(bool sleeps) const {
    return is_any(wanted_) || (source_ != nullptr && source_->lets_go(sleeps));
  }
  bool is_callers() const { return source_ == nullptr || source_->is_callers(); }
  /// Says that the caller waits no more, and for how long it has: to the newest look, as one more
  /// would cost short waits more than its news is worth.
  void end() const;
  /// Whether a rank that a job waits for may need this core to go on; also tells the others which
  /// core this rank is on.
  bool waits_for_own_core() const;
  int crowds_of_a_core() const;
  /// How many times less often than a few threads would, this one looks around; not so seldom that
  /// it would be late for the time-out.
  int seldom(std::chrono::nanoseconds timeout) const;
  void poll_network();
  void sleep(Clock::time_point now);
  /// A rank of this host that rings wakes no thread that sleeps on the network. So a thread that
  /// has waited for long sleeps on its doorbells, which the reactor rings when something has come.
  bool leave_to_reactor(std::span<RankGroup* const> groups, Clock::time_point now) const;
  /// Meanwhile the thread hears no doorbell that a rank of this host rings. Where no rank would
  /// ring one, a thread that has waited for long sleeps for long: on a host with more ranks than
  /// cores, constant looks keep other ranks from their work.
  void sleep_on_network(std::span<RankGroup* const> groups, Clock::time_point now);
  bool has_failed() const;
  void throw_if_failed();
  void inspect(Job& job, Clock::time_point now);

  std::span<Job* const> pending_;
  const JobSource* source_;
  const Wanted wanted_;
  Job* concerned_;
  int spins_;
  Clock::duration yields_for_;
  bool crowded_ = false;
  int ranks_of_a_core_ = 1;
  bool spans_hosts_ = false;
  bool left_to_reactor_ = false;  // the network is, while this thread sleeps on its doorbells
  bool lets_go_ = false;
  int looks_ = 0;
  Clock::time_point began_{}, newest_{};
};

}  // namespace tutti

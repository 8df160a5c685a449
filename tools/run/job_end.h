// How a job ends: its exit status, and when its ranks are asked to end and then killed.
//
// Ranks that may go on without those that fail end by themselves, and conclude() sums up. In all
// other cases something ends the job: a rank that fails, a host that is lost, the user, or the
// clock. Then the status is final. The ranks get a signal, some time to clean up, and SIGKILL.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace tutti {

class JobEnd {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `signal_all` sends a signal to all ranks.
  explicit JobEnd(std::function<void(int)> signal_all) : signal_all_(std::move(signal_all)) {}

  /// Something ends the job: the status is final.
  bool has_begun() const { return begun_; }
  /// The job's exit status, so far.
  int status() const { return status_; }

  // What ends a job, once. Each leaves the ranks another time.
  /// No rank runs.
  void begin_without_ranks(int status);
  /// The ranks may report themselves before they are asked to end.
  void begin_after_reports(int status);
  /// They need not report, and have longer to clean up.
  void begin_without_reports(int status);
  /// The job's time is over.
  void begin_on_time_out(int status, Time now);
  void begin_with_kill(int status);

  /// The user's signal `number` asks the job to end. The first one goes to the ranks, the second
  /// one kills them; from the third on a job on `several` hosts is abandoned.
  void ask_by_user(int number, bool several);
  /// Nobody waits for the hosts any more.
  bool is_abandoned() const { return abandoned_; }
  /// Nobody waits until all output is written.
  void want_no_more_output() { no_more_output_ = true; }
  bool wants_no_more_output() const { return no_more_output_; }

  // Ranks that end by themselves, while the job goes on.
  void succeeded() { ++succeeded_; }
  /// With --keep-going or --elastic: `rank` is not started again. `status` is waitpid()'s.
  void failed(int rank, int status) { failed_.push_back({rank, status}); }
  /// All have ended: sets the status, and reports those that failed.
  void conclude();

  /// The ranks were killed a while ago: hosts that have not said that theirs are dead are silent.
  bool silent_hosts_may_be_left(Time now) const { return killed_ && now >= kill_at_; }
  /// Sends the signals that are due.
  void keep_time(Time now);
  Time next_wake() const { return std::min(terminate_at_, kill_at_); }

 private:
  struct Failed {
    int rank, status;
  };

  void kill_all();

  const std::function<void(int)> signal_all_;
  int status_ = 0;
  bool begun_ = false;
  bool asked_by_user_ = false;
  bool no_more_output_ = false, abandoned_ = false;
  bool killed_ = false;  // SIGKILL is on its way to all ranks
  std::vector<Failed> failed_;
  std::size_t succeeded_ = 0;
  Time terminate_at_ = Time::max();
  Time kill_at_ = Time::max();
};

}  // namespace tutti

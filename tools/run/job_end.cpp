// See job_end.h.
#include "tools/run/job_end.h"

#include <signal.h>
#include <sys/wait.h>

#include "bootstrap/rendezvous_protocol.h"
#include "tools/run/job_report.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kForOwnReports = 2s;  // after a rank failed, before the others are asked to end
constexpr auto kForCleanUp = 3s;     // after they were asked, before they are killed
constexpr auto kAfterSignal = 5s;    // after the user's signal, before the ranks are killed
constexpr auto kAfterKill = 5s;      // after that, before hosts that say nothing are left alone

JobEnd::Time time_now() { return std::chrono::steady_clock::now(); }

}  // namespace

void JobEnd::begin_without_ranks(int status) {
  status_ = status;
  begun_ = true;
}

void JobEnd::begin_after_reports(int status) {
  status_ = status;
  begun_ = true;
  terminate_at_ = time_now() + kForOwnReports;
  kill_at_ = terminate_at_ + kForCleanUp;
}

void JobEnd::begin_without_reports(int status) {
  begin_after_reports(status);
  terminate_at_ = time_now();
}

void JobEnd::begin_on_time_out(int status, Time now) {
  status_ = status;
  begun_ = true;
  terminate_at_ = now;
  kill_at_ = now + kForCleanUp;
}

void JobEnd::begin_with_kill(int status) {
  status_ = status;
  begun_ = true;
  kill_all();
}

void JobEnd::ask_by_user(int number, bool several) {
  if (asked_by_user_) {
    abandoned_ = no_more_output_ && several;  // by the third
    if (!killed_) kill_at_ = time_now();
    no_more_output_ = true;
    return;
  }
  asked_by_user_ = true;
  if (!begun_) status_ = 128 + number;
  begun_ = true;
  signal_all_(number);
  terminate_at_ = Time::max();
  kill_at_ = std::min(kill_at_, time_now() + kAfterSignal);
}

// Some ranks have perhaps ended too early. A rank that was killed could not help it, and the others
// may have gone on without it. A rank that exits says itself whether its work is done.
void JobEnd::conclude() {
  if (failed_.empty()) return;
  const auto exited =
      std::ranges::find_if(failed_, [](const Failed& failed) { return WIFEXITED(failed.status); });
  if (exited != failed_.end()) {
    status_ = exit_status(exited->status);
  } else if (succeeded_ == 0) {
    status_ = exit_status(failed_.front().status);
  }
  std::vector<int> ranks;
  for (const Failed& failed : failed_) ranks.push_back(failed.rank);
  std::ranges::sort(ranks);
  report_on_job("{} of {} ranks ended with status 0; {} did not", succeeded_,
                succeeded_ + ranks.size(), protocol::list_ranks(ranks));
}

void JobEnd::keep_time(Time now) {
  if (now >= terminate_at_) {
    terminate_at_ = Time::max();
    signal_all_(SIGTERM);
    signal_all_(SIGCONT);  // a stopped process would not notice
  }
  if (now >= kill_at_) kill_all();
}

void JobEnd::kill_all() {
  killed_ = true;
  kill_at_ = time_now() + kAfterKill;
  signal_all_(SIGKILL);
}

}  // namespace tutti

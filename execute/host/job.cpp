#include "execute/host/job.h"

#include <algorithm>
#include <chrono>

#include "execute/host/wait.h"

namespace tutti {
namespace {

// Looks without a pause: a running peer's answer to a short message is seen 7 ns sooner (of 53).
constexpr int kEagerLooks = 64;

bool answers_soon(const Job& job) {
  if (job.policy().crowded || (job.operation().spans_hosts() && outnumber_cores())) return false;
  for (int looks = std::min(kEagerLooks, job.policy().spins); looks > 0; --looks) {
    job.operation().poll();
    if (job.operation().can_advance()) return true;
  }
  return false;
}

/// Returns when `job` can do something; false: it cannot, and is wanted elsewhere.
bool wait_for(Job& job, Wanted wanted) {
  if (answers_soon(job)) return true;
  job.standstill() = {};
  Job* const jobs[] = {&job};
  Wait wait(jobs, nullptr, wanted);
  do {
    wait.once();
    if (job.operation().can_advance()) return true;
  } while (!wait.lets_go());
  return false;
}

/// Returns when one of `jobs` can do something, has failed (it is taken out then, and `source`
/// told), or `source` has more; false: `source` lets go. `looks_after`: a job that does not move is
/// looked after even though others always move.
bool wait_for_any(std::vector<Job*>& jobs, JobSource& source, bool looks_after) {
  Wait wait(jobs, &source);
  std::exception_ptr error;
  try {
    if (looks_after) wait.look_after(std::chrono::steady_clock::now());
    if (jobs.size() == 1 && answers_soon(*jobs.front())) return true;
    while (!wait.is_over()) {
      if (wait.lets_go()) return false;
      wait.once();
    }
    return true;
  } catch (...) {
    error = std::current_exception();
  }
  Job& failed = wait.concerned();
  std::erase(jobs, &failed);
  failed.operation().abandon();
  source.ended(failed, error);
  return true;
}

/// Does what can be done of `job`; true when it has ended, which `source` knows then.
bool advance_or_end(Job& job, JobSource& source) {
  std::exception_ptr error;
  try {
    const bool stood = job.standstill().began != std::chrono::steady_clock::time_point{};
    if (stood && job.operation().can_advance()) {
      job.operation().group().diagnostics().end_wait(job.standstill().began);
      job.standstill() = {};
    }
    if (!job.advance()) return false;
  } catch (...) {
    error = std::current_exception();
    job.operation().abandon();
  }
  source.ended(job, error);
  return true;
}

/// Abandons what does not come to its end.
class Abandoning {
 public:
  explicit Abandoning(std::span<Job* const> jobs) : jobs_(jobs) {}
  Abandoning(const Abandoning&) = delete;
  Abandoning& operator=(const Abandoning&) = delete;
  ~Abandoning() {
    for (Job* job : jobs_) job->operation().abandon();
  }
  void all_done() { jobs_ = {}; }

 private:
  std::span<Job* const> jobs_;
};

/// The jobs of one list, until they are wanted elsewhere. The first failure is that of all of them.
class JobList final : public JobSource {
 public:
  explicit JobList(Wanted wanted) : wanted_(wanted) {}
  bool lets_go(bool) const override { return is_any(wanted_); }
  bool is_callers() const override { return true; }
  void ended(Job&, std::exception_ptr error) override {
    if (error) std::rethrow_exception(error);
  }

 private:
  const Wanted wanted_;
};

}  // namespace

bool Job::advance() {
  while (operation_->advance()) {
    const Binding* const binding = next();
    if (binding == nullptr) return true;
    operation_->bind(*binding);
  }
  return false;
}

std::span<Job*> run_unless_wanted(std::span<Job*> jobs, Wanted wanted) {
  Abandoning abandoning(jobs);
  // Most groups are a message to another rank and one from there, and the first ends at once.
  const auto ended = std::partition(jobs.begin(), jobs.end(), [](Job* j) { return !j->advance(); });
  std::span<Job*> left(jobs.begin(), ended);
  if (left.size() == 1) {
    while (!left.empty() && wait_for(*left.front(), wanted)) {
      if (left.front()->advance()) left = {};
    }
  } else if (!left.empty()) {
    JobList list(wanted);
    std::vector<Job*> pending(left.begin(), left.end());
    run_to_completion(list, pending);
    left = left.first(
        static_cast<std::size_t>(std::ranges::copy(pending, left.begin()).out - left.begin()));
  }
  abandoning.all_done();
  return left;
}

bool run_unless_wanted(Job& job, const Binding& binding, Wanted wanted) {
  Job* const jobs[] = {&job};
  Abandoning abandoning(jobs);
  Operation& operation = job.operation();
  operation.bind(binding);
  bool is_over = operation.advance();
  while (!is_over && wait_for(job, wanted)) is_over = operation.advance();
  abandoning.all_done();
  return is_over;
}

void run_to_completion(JobSource& source, std::vector<Job*>& pending) {
  constexpr unsigned kPassesPerLook = 64;
  for (unsigned pass = 1;; ++pass) {
    if (source.has_more()) source.take(pending);
    std::erase_if(pending, [&](Job* job) { return advance_or_end(*job, source); });
    if (source.lets_go(false) || (pending.empty() && !source.has_more())) return;
    if (!pending.empty() && !wait_for_any(pending, source, pass % kPassesPerLook == 0)) return;
  }
}

}  // namespace tutti

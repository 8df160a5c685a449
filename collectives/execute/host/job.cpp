#include "collectives/execute/host/job.h"

#include <algorithm>
#include <chrono>

#include "collectives/execute/host/wait.h"

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

/// Returns when `job` can do something.
void wait_for(Job& job) {
  if (answers_soon(job)) return;
  job.standstill() = {};
  Job* const jobs[] = {&job};
  Wait wait(jobs);
  do wait.once();
  while (!job.operation().can_advance());
}

/// Returns when one of `jobs` can do something, has failed (it is taken out then, and `source`
/// told), or `source` has more. `looks_after`: a job that does not move is looked after even though
/// others always move.
void wait_for_any(std::vector<Job*>& jobs, JobSource& source, bool looks_after) {
  Wait wait(jobs, &source);
  std::exception_ptr error;
  try {
    if (looks_after) wait.look_after(std::chrono::steady_clock::now());
    if (jobs.size() == 1 && answers_soon(*jobs.front())) return;
    while (!wait.is_over()) wait.once();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  Job& failed = wait.concerned();
  std::erase(jobs, &failed);
  failed.operation().abandon();
  source.ended(failed, error);
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

/// The jobs of one list. The first failure is that of all of them.
class JobList final : public JobSource {
 public:
  explicit JobList(std::span<Job* const> jobs) : jobs_(jobs) {}
  bool has_more() const override { return !jobs_.empty(); }
  void take(std::vector<Job*>& pending) override {
    pending.insert(pending.end(), jobs_.begin(), jobs_.end());
    jobs_ = {};
  }
  bool is_callers() const override { return true; }
  void ended(Job&, std::exception_ptr error) override {
    if (error) std::rethrow_exception(error);
  }

 private:
  std::span<Job* const> jobs_;
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

void run_to_completion(Operation& operation, const Binding& binding, const WaitPolicy& policy) {
  Job job(operation, policy);
  Job* const jobs[] = {&job};
  Abandoning abandoning(jobs);
  operation.bind(binding);
  while (!operation.advance()) wait_for(job);
  abandoning.all_done();
}

bool run_unless_wanted(Job& job, const std::atomic<int>& wanted) {
  Job* const jobs[] = {&job};
  Abandoning abandoning(jobs);
  bool let_go = false;
  while (!let_go && !job.advance()) {
    if (answers_soon(job)) continue;
    job.standstill() = {};
    Wait wait(jobs, nullptr, &wanted);
    do wait.once();
    while (!job.operation().can_advance() && !wait.lets_go());
    let_go = wait.lets_go() && !job.operation().can_advance();
  }
  abandoning.all_done();
  return !let_go;
}

void run_to_completion(std::span<Job*> jobs) {
  Abandoning abandoning(jobs);
  // Most groups are a message to another rank and one from there, and the first ends at once.
  const auto ended = std::partition(jobs.begin(), jobs.end(), [](Job* j) { return !j->advance(); });
  const std::span<Job* const> left(jobs.begin(), ended);
  if (left.size() == 1) {
    do wait_for(*left.front());
    while (!left.front()->advance());
  } else if (!left.empty()) {
    JobList list(left);
    run_to_completion(list);
  }
  abandoning.all_done();
}

void run_to_completion(JobSource& source) {
  constexpr unsigned kPassesPerLook = 64;
  std::vector<Job*> pending;
  for (unsigned pass = 1;; ++pass) {
    if (source.has_more()) source.take(pending);
    std::erase_if(pending, [&](Job* job) { return advance_or_end(*job, source); });
    if (pending.empty()) {
      if (source.has_more()) continue;
      return;
    }
    wait_for_any(pending, source, pass % kPassesPerLook == 0);
  }
}

}  // namespace tutti

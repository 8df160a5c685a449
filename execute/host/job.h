// How a thread runs operations, alone or side by side. Where none can go on, it waits (wait.h).
#pragma once

#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "execute/host/operation.h"
#include "execute/host/peer_wait.h"

namespace tutti {

/// What runs on an Operation: a call, or several one after the other.
class Job {
 public:
  /// Both outlive the job.
  Job(Operation& operation, const WaitPolicy& policy) : operation_(&operation), policy_(policy) {}
  virtual ~Job() = default;

  /// `binding` outlives its run.
  void start(const Binding& binding) {
    standstill_ = {};
    operation_->bind(binding);
  }
  /// Does what can be done; true when the last call is finished.
  bool advance();
  Operation& operation() const { return *operation_; }
  const WaitPolicy& policy() const { return policy_; }

  /// Of the job as a whole: since when nothing of it has moved.
  Standstill& standstill() { return standstill_; }

 protected:
  /// The call after the one that has just finished; null: that was the last.
  virtual const Binding* next() { return nullptr; }
  /// What next() returns runs on this one, which outlives the job.
  void run_on(Operation& operation) { operation_ = &operation; }

 private:
  Operation* operation_;
  const WaitPolicy& policy_;
  Standstill standstill_;
};

/// Gives out jobs while others run, and hears what becomes of them. The thread that runs them calls
/// it.
class JobSource {
 public:
  virtual ~JobSource() = default;
  /// Whether there are more jobs. Asked at every look, so it has to be cheap.
  virtual bool has_more() const { return false; }
  /// Adds them to `pending`, started.
  virtual void take(std::vector<Job*>& /*pending*/) {}
  /// `job` is not run any further, nor looked at: it has finished, or, with `error`, failed.
  virtual void ended(Job& job, std::exception_ptr error) = 0;
  /// Whether the thread should leave the jobs, to another one or for later. Asked when none can go
  /// on. `sleeps`: it would sleep in the kernel now.
  virtual bool lets_go(bool /*sleeps*/) const { return false; }
  /// Whether a caller waits on this thread, for all of the jobs.
  virtual bool is_callers() const { return false; }
};

/// Counters, one of which is not 0 when a thread that waits should leave its jobs to another one.
using Wanted = std::span<const std::atomic<int>* const>;

/// Runs `jobs`, which have been started, side by side. Returns those that are not over: where one
/// of them has to wait while it is `wanted`, all stand still, for another thread to run them on.
/// Throws Error after the first failure, which every rank of that communicator can read by then.
/// Changes the order of `jobs`.
std::span<Job*> run_unless_wanted(std::span<Job*> jobs, Wanted wanted);
/// run_unless_wanted() for a job of one call that has not been started; true: it is over.
bool run_unless_wanted(Job& job, const Binding& binding, Wanted wanted);

/// Runs `pending` and the jobs of `source` side by side until there are none, or `source` lets go
/// of those in `pending`; those that come meanwhile begin at once. A failure ends the jobs of its
/// communicator only. Throws what `source` throws.
void run_to_completion(JobSource& source, std::vector<Job*>& pending);

}  // namespace tutti

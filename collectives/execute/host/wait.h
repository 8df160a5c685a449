// How a thread waits for operations: spin briefly, then yield the core, then sleep in the kernel,
// and meanwhile watch for a failure, a dead peer, calls that do not match, and the user's deadline.
#pragma once

#include <chrono>
#include <span>

#include "collectives/execute/host/operation.h"

namespace tutti {

struct WaitPolicy {
  int spins = 0;                             // looks before the core is given away
  bool crowded = false;                      // there are more ranks than cores
  std::chrono::nanoseconds timeout{0};       // 0: none
  std::chrono::nanoseconds report_after{0};  // log a wait that is this long; 0: never
};

/// What runs on one Operation: a call, or several one after the other.
class Job {
 public:
  /// Both outlive the job.
  Job(Operation& operation, const WaitPolicy& policy) : operation_(operation), policy_(policy) {}
  virtual ~Job() = default;

  /// `binding` outlives its run.
  void start(const Binding& binding) { operation_.bind(binding); }
  /// Does what can be done; true when the last call is finished.
  bool advance();
  Operation& operation() const { return operation_; }
  const WaitPolicy& policy() const { return policy_; }

 protected:
  /// The call after the one that has just finished; null: that was the last.
  virtual const Binding* next() { return nullptr; }

 private:
  Operation& operation_;
  const WaitPolicy& policy_;
};

/// Runs `operation` with `binding`, which outlives that. Throws Error after the first failure,
/// which every rank of the communicator can read by then.
void run_to_completion(Operation& operation, const Binding& binding, const WaitPolicy& policy);

/// Runs all `jobs` to their ends, side by side. Throws Error after the first failure, which every
/// rank of that communicator can read by then.
void run_to_completion(std::span<Job* const> jobs);

}  // namespace tutti

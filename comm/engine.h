// The engine of a rank: one thread that runs the started calls of the rank. Communicators that were
// made of one another (split, shrink) share it, so the communicators of a mesh of many dimensions
// do not need a thread each.
//
// It is a JobSource (wait.h): the jobs of one communicator are its series of calls (series.h), and
// the jobs of all communicators run side by side. A thread that starts a call while the engine
// sleeps wakes it, by the doorbell of a communicator in which the engine waits.
//
// The thread exists from the first started call until the destruction of the last communicator that
// has started any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "execute/host/job.h"

namespace tutti {

class StartedCalls;
struct StartedCall;

class Engine final : public std::enable_shared_from_this<Engine>, JobSource {
 public:
  /// Runs the calls of `calls` from now on. Throws Error(system) if the system gives no thread.
  void join(StartedCalls& calls);
  /// `calls` has nothing left to run.
  void leave(StartedCalls& calls);

  void start(StartedCalls& calls, std::shared_ptr<StartedCall> call);
  /// Some of `calls` should be withdrawn.
  void withdraw(StartedCalls& calls);
  /// Waits until `calls`, which is not idle, has nothing left to run.
  void drain(StartedCalls& calls);
  /// Destroys `impl`, which owns `calls`, as soon as `calls` has nothing left to run. If that is so
  /// already, `impl` stays with the caller.
  void destroy_when_idle(StartedCalls& calls, std::unique_ptr<Communicator::Impl>& impl);

 private:
  bool has_more() const override { return more_.load(std::memory_order_seq_cst); }
  void take(std::vector<Job*>& pending) override;
  /// With the lock: wakes the waiting thread, which looks for work. False if it has been woken
  /// already.
  bool ring_doorbells();
  void ended(Job& job, std::exception_ptr error) override;
  /// Call this when `calls` may be idle. If it is idle, it may be gone on return.
  void settle(StartedCalls& calls);
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable changed_;     // for the thread: there is more
  std::condition_variable settled_;     // for drain()
  std::atomic<bool> more_{false};       // started, not taken yet
  std::vector<StartedCalls*> members_;  // those that have joined
  std::vector<StartedCalls*> taken_;    // for the thread: of these, those that have more
  std::thread thread_;
  std::stop_source stop_;  // of `thread_`
};

/// Whether this is an engine's thread: it runs a callback then, which must not block.
bool is_engine_thread();
/// Throws Error(invalid_usage) if so: the engine would wait for itself.
void refuse_to_block(const char* what);

}  // namespace tutti

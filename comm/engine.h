// The progress engine of a rank: it runs the rank's started calls, on one thread at a time. A
// thread that waits for a call drives the engine, so that nothing is handed over; where none does,
// the engine's own thread. Communicators that were made of one another (split, shrink) share an
// engine, so the communicators of a mesh of many dimensions do not need a thread each.
//
// It is a JobSource (job.h): the jobs of one communicator are its series of calls (series.h), and
// the jobs of all communicators run side by side. A thread that starts a call while the engine's
// sleeps wakes it: by the doorbell of a communicator in which it waits, where it drives. While
// callers drive, the engine's thread looks now and then by itself whether they leave anything.
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
#include "core/wait.h"
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
  /// A caller waits for `call`: its thread drives the engine, unless another one does, until `call`
  /// is over, `deadline`, or it would sleep in the kernel.
  void drive_for(const Future::State& call, Deadline deadline);
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
  void ended(Job& job, std::exception_ptr error) override;
  bool lets_go(bool sleeps) const override;
  // With the lock:
  /// There is more: the thread that drives looks for it; where none does, the engine's wakes.
  void tell(std::unique_lock<std::mutex>& lock);
  bool has_work() const {
    return more_.load(std::memory_order_relaxed) || !pending_.empty() || is_left_to_thread_;
  }
  /// The engine's thread is to drive at once, unless another one does.
  void hurry();
  /// Runs what there is, without the lock.
  void drive(std::unique_lock<std::mutex>& lock);
  /// Call this when `calls` may be idle. If it is idle, it may be gone on return.
  void settle(StartedCalls& calls);
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable changed_;     // for the engine's thread: there is more
  std::condition_variable settled_;     // for drain()
  std::atomic<bool> more_{false};       // started, not taken yet
  std::vector<StartedCalls*> members_;  // those that have joined
  std::thread thread_;
  std::stop_source stop_;   // of `thread_`
  bool is_driven_ = false;  // now, by one thread
  /// What the engine's thread does while it does not drive.
  enum class Thread : std::uint8_t {
    sleeps,   // until `changed_`
    naps,     // it looks soon by itself
    hurries,  // see hurry()
  };
  Thread thread_state_ = Thread::sleeps;
  std::uint64_t claims_ = 0;          // how often in a row callers waited soon
  std::atomic<Deadline> left_alone_;  // since when no thread drives, or none did when it was told
  std::vector<Job*> pending_;         // this and the rest: of the thread that drives
  std::vector<StartedCalls*> taken_;  // of `members_`, those that have more
  const Future::State* awaited_ = nullptr;  // for which a caller drives; null: the engine's thread
  Deadline deadline_;                       // of that
  bool is_left_to_thread_ = false;          // there is what no caller may do
};

/// Whether this thread drives an engine: it runs a callback then, which must not block.
bool is_engine_thread();
/// Throws Error(invalid_usage) if so: the engine would wait for itself.
void refuse_to_block(const char* what);

}  // namespace tutti

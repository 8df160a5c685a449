#include "comm/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "comm/future.h"
#include "comm/impl.h"
#include "comm/started_calls.h"
#include "core/background.h"
#include "core/wait.h"

namespace tutti {
namespace {

thread_local bool on_engine = false;

using Clock = std::chrono::steady_clock;

// A caller that waits so soon gains nothing from a thread that begins meanwhile; after so many in a
// row, the engine's thread gives callers this time to come.
constexpr auto kSoon = std::chrono::microseconds(20);
constexpr std::uint64_t kClaims = 8;
constexpr std::chrono::microseconds kNap(100), kLongestNap(2000);

}  // namespace

bool is_engine_thread() { return on_engine; }

void refuse_to_block(const char* what) {
  if (!on_engine) return;
  throw Error(ErrorCode::invalid_usage,
              std::string("a callback of a Future must not ") + what +
                  ": it runs on the thread that has to finish what it would wait for");
}

void Engine::join(StartedCalls& calls) {
  const std::lock_guard lock(mutex_);
  members_.push_back(&calls);
  if (thread_.joinable()) return;
  stop_ = {};
  try {
    // The thread keeps the engine: a callback may destroy the last communicator.
    thread_ = start_thread("tutti-progress", [self = shared_from_this(), stop = stop_.get_token()] {
      self->work(stop);
    });
  } catch (...) {
    members_.pop_back();
    throw;
  }
}

void Engine::leave(StartedCalls& calls) {
  std::thread last;
  {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &calls);
    if (!members_.empty()) return;
    stop_.request_stop();
    last = std::move(thread_);
  }
  changed_.notify_all();
  if (last.get_id() == std::this_thread::get_id()) return last.detach();
  last.join();
}

void Engine::start(StartedCalls& calls, std::shared_ptr<StartedCall> call) {
  std::unique_lock lock(mutex_);
  calls.inbox_.push_back(std::move(call));
  // release: `calls` is seen by those that see this.
  calls.impl_.engine_runs.store(true, std::memory_order_release);
  tell(lock);
}

void Engine::withdraw(StartedCalls& calls) {
  std::unique_lock lock(mutex_);
  if (calls.is_idle()) return;
  calls.withdrawing_ = true;
  tell(lock);
}

void Engine::tell(std::unique_lock<std::mutex>& lock) {
  if (more_.exchange(true, std::memory_order_seq_cst)) return;
  if (is_driven_) {
    for (const StartedCalls* member : members_) {
      if (!member->is_idle()) ring(member->impl_.group->control().doorbell);
    }
    return;
  }
  const bool sleeps = thread_state_ == Thread::sleeps;
  lock.unlock();  // the thread takes it first
  if (sleeps) changed_.notify_one();
  left_alone_ = Clock::now();  // after the thread had this core, perhaps
}

void Engine::hurry() {
  thread_state_ = Thread::hurries;
  changed_.notify_one();
}

void Engine::drain(StartedCalls& calls) {
  refuse_to_block("make a blocking call");
  std::unique_lock lock(mutex_);
  hurry();
  const auto is_idle = [&] { return calls.is_idle(); };
  while (Interruptible::any() && !settled_.wait_for(lock, kMoment, is_idle)) {
    lock.unlock();
    // What is left to run then fails, on all ranks, and so ends soon.
    if (must_stop()) calls.interrupted();
    lock.lock();
  }
  settled_.wait(lock, is_idle);
}

void Engine::destroy_when_idle(StartedCalls& calls, std::unique_ptr<Communicator::Impl>& impl) {
  const std::lock_guard lock(mutex_);
  if (calls.is_idle()) return;
  calls.leaving_ = std::move(impl);
}

void Engine::take(std::vector<Job*>& pending) {
  {
    const std::lock_guard lock(mutex_);
    taken_.reserve(members_.size());
    more_.store(false, std::memory_order_relaxed);
    for (StartedCalls* member : members_) {
      if (member->inbox_.empty() && !member->withdrawing_ && !member->leaving_) continue;
      member->arrived_.swap(member->inbox_);
      member->taking_back_ = std::exchange(member->withdrawing_, false);
      taken_.push_back(member);
    }
  }
  for (StartedCalls* const calls : taken_) {
    calls->begin(pending);
    if (calls->taking_back_) calls->take_back(pending);
    settle(*calls);
  }
  taken_.clear();
}

void Engine::ended(Job& job, std::exception_ptr error) {
  auto& series = static_cast<StartedSeries&>(job);
  StartedCalls& calls = series.owner();
  calls.ended(series, error);
  settle(calls);
}

void Engine::settle(StartedCalls& calls) {
  if (calls.running_ > 0) return;
  std::unique_ptr<Communicator::Impl> leaving;
  const std::lock_guard lock(mutex_);
  if (!calls.inbox_.empty()) return;
  // A caller may be in a call of it, by way of which it drives.
  if (calls.leaving_ && awaited_ != nullptr) {
    is_left_to_thread_ = true;
    return;
  }
  leaving = std::move(calls.leaving_);
  // From here on a waiting thread may destroy `calls`.
  calls.impl_.engine_runs.store(false, std::memory_order_release);
  settled_.notify_all();
}

bool Engine::lets_go(bool sleeps) const {
  if (awaited_ == nullptr) return false;
  return sleeps || is_left_to_thread_ || awaited_->done.load(std::memory_order_acquire) ||
         (deadline_ != Deadline::max() && Clock::now() >= deadline_);
}

void Engine::drive(std::unique_lock<std::mutex>& lock) {
  struct Drive {
    Engine& engine;
    std::unique_lock<std::mutex>& lock;
    const bool on_engine_before = std::exchange(on_engine, true);
    const Interruptible none{nullptr};  // a caller is interrupted, or cancelled, in its own wait
    int cancel = 0;
    ~Drive() {
      pthread_setcancelstate(cancel, nullptr);
      on_engine = on_engine_before;
      lock.lock();
      engine.is_driven_ = false;
      engine.awaited_ = nullptr;
    }
  };
  is_driven_ = true;
  lock.unlock();
  Drive drive{*this, lock};
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &drive.cancel);
  run_to_completion(*this, pending_);
}

void Engine::drive_for(const Future::State& call, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool comes_first = !is_driven_ || awaited_ == nullptr;
  if (comes_first) claims_ = Clock::now() - left_alone_.load() < kSoon ? claims_ + 1 : 0;
  if (is_driven_ || is_left_to_thread_) return;
  // A callback that starts a call must not find the group of the caller.
  if (group_is_open()) return hurry();
  awaited_ = &call;
  deadline_ = deadline;
  drive(lock);
  if (!has_work()) return;
  std::uint32_t waiting = 0;  // callers, this one included
  for (const StartedCalls* member : members_) waiting += member->callers_->futures.load();
  const bool is_over = call.done.load(std::memory_order_acquire);
  if (!is_over || waiting > 1 || is_left_to_thread_) return hurry();
  if (thread_state_ == Thread::sleeps) changed_.notify_one();
  left_alone_ = Clock::now();
}

void Engine::work(const std::stop_token& stop) {
  on_engine = true;
  std::unique_lock lock(mutex_);
  auto nap = kNap;
  while (!stop.stop_requested()) {
    const std::uint64_t before = claims_;
    if (before >= kClaims && thread_state_ != Thread::hurries) {
      // It finds itself what they leave, so that start() needs no system call.
      thread_state_ = Thread::naps;
      changed_.wait_for(lock, nap,
                        [&] { return thread_state_ != Thread::naps || stop.stop_requested(); });
      // Ever less often: whoever sleeps often takes more than its share of a core from others.
      nap = std::min(2 * nap, kLongestNap);
      if (thread_state_ == Thread::naps) {
        if (claims_ != before || is_driven_) continue;
        if (has_work()) claims_ = 0;
      }
    }
    nap = kNap;
    thread_state_ = Thread::sleeps;
    if (is_driven_ || !has_work()) {
      if (!stop.stop_requested()) changed_.wait(lock);
      continue;
    }
    if (std::exchange(is_left_to_thread_, false)) more_ = true;
    drive(lock);
  }
  changed_.notify_one();  // another one may have begun since, for communicators that have joined
}

}  // namespace tutti

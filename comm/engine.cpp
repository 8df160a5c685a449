#include "comm/engine.h"

#include <string>
#include <utility>

#include "comm/impl.h"
#include "comm/started_calls.h"
#include "core/background.h"
#include "core/wait.h"

namespace tutti {
namespace {

thread_local bool on_engine = false;

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
  {
    const std::lock_guard lock(mutex_);
    calls.inbox_.push_back(std::move(call));
    // release: `calls` is seen by those that see this.
    calls.impl_.engine_runs.store(true, std::memory_order_release);
    if (!ring_doorbells()) return;
  }
  changed_.notify_one();  // without the lock, which it takes first
}

void Engine::withdraw(StartedCalls& calls) {
  {
    const std::lock_guard lock(mutex_);
    if (calls.is_idle()) return;
    calls.withdrawing_ = true;
    if (!ring_doorbells()) return;
  }
  changed_.notify_one();
}

bool Engine::ring_doorbells() {
  if (more_.exchange(true, std::memory_order_seq_cst)) return false;
  for (const StartedCalls* member : members_) {
    if (!member->is_idle()) ring(member->impl_.group->control().doorbell);
  }
  return true;
}

void Engine::drain(StartedCalls& calls) {
  refuse_to_block("make a blocking call");
  std::unique_lock lock(mutex_);
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
  if (!calls.is_idle()) calls.leaving_ = std::move(impl);
}

void Engine::take(std::vector<Job*>& pending) {
  {
    const std::lock_guard lock(mutex_);
    if (std::this_thread::get_id() != thread_.get_id()) return;  // another one is there already
    taken_.reserve(members_.size());
    more_.store(false, std::memory_order_relaxed);
    for (StartedCalls* member : members_) {
      if (member->inbox_.empty() && !member->withdrawing_) continue;
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
  leaving = std::move(calls.leaving_);
  // From here on a waiting thread may destroy `calls`.
  calls.impl_.engine_runs.store(false, std::memory_order_release);
  settled_.notify_all();
}

void Engine::work(const std::stop_token& stop) {
  on_engine = true;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return more_ || stop.stop_requested(); });
      if (stop.stop_requested()) return;
    }
    run_to_completion(*this);
  }
}

}  // namespace tutti

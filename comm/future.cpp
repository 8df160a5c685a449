#include "comm/future.h"

#include <chrono>
#include <exception>
#include <utility>

#include "comm/engine.h"
#include "core/log.h"
#include "core/wait.h"

namespace tutti {
namespace {

void call_back(const std::function<void()>& callback) {
  try {
    callback();
  } catch (const std::exception& error) {
    log().error("a callback of a Future threw: {}", error.what());
  } catch (...) {
    log().error("a callback of a Future threw something that is no std::exception");
  }
}

/// A caller waits for a started call.
class CallerWaits {
 public:
  /// With the lock of `state`.
  explicit CallerWaits(const Future::State& state) : callers_(state.callers) {
    if (callers_) callers_->futures.fetch_add(1, std::memory_order_relaxed);
  }
  ~CallerWaits() {
    if (!callers_) return;
    const auto time = std::chrono::nanoseconds(std::chrono::steady_clock::now() - began_);
    callers_->ns.fetch_add(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
    callers_->futures.fetch_sub(1, std::memory_order_relaxed);
  }
  CallerWaits(const CallerWaits&) = delete;
  CallerWaits& operator=(const CallerWaits&) = delete;

 private:
  const std::shared_ptr<CallersWaits> callers_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace

void Future::State::complete(std::optional<Error> why) {
  std::vector<std::function<void()>> mine;
  {
    const std::lock_guard lock(mutex);
    error = std::move(why);
    mine.swap(callbacks);
    done.store(true, std::memory_order_release);
    callers.reset();
    engine.reset();
  }
  changed.notify_all();
  for (const auto& callback : mine) call_back(callback);
}

void Future::State::check_process() const {
  if (made_in == process_generation()) return;
  throw Error(ErrorCode::invalid_usage,
              "this Future is of the process of which this one is a child: after fork() only the "
              "parent can wait for it");
}

bool Future::ready() const { return !state_ || state_->done.load(std::memory_order_acquire); }

bool Future::State::wait(Deadline deadline) {
  check_process();
  refuse_to_block("wait for a Future");
  std::unique_lock lock(mutex);
  const CallerWaits waits(*this);
  const auto is_over = [&] { return done.load(std::memory_order_acquire); };
  // A copy is not interrupted half-way: a caller that has no time does not begin any.
  constexpr std::chrono::milliseconds kNoTime(10);
  const bool has_time = deadline == Deadline::max() || deadline_after(kNoTime) <= deadline;
  if (const std::shared_ptr<Engine> its = has_time ? engine : nullptr) {
    lock.unlock();
    its->drive_for(*this, deadline);
    lock.lock();
  }
  if (deadline != Deadline::max()) return changed.wait_until(lock, deadline, is_over);
  changed.wait(lock, is_over);  // without a timer of the kernel
  return true;
}

void Future::wait() { wait_until(Deadline::max()); }

bool Future::wait_for(std::chrono::nanoseconds longest) {
  return wait_until(deadline_after(longest));
}

bool Future::wait_until(std::chrono::steady_clock::time_point deadline) {
  if (!ready() && !state_->wait(deadline)) return false;
  if (state_ && state_->error) throw Error(*state_->error);
  return true;
}

std::optional<Error> Future::error() const {
  if (!state_ || !ready()) return std::nullopt;
  return state_->error;
}

void Future::on_ready(std::function<void()> callback) {
  if (!callback) throw Error(ErrorCode::invalid_argument, "on_ready: there is no function to call");
  if (!ready()) {
    state_->check_process();
    const std::lock_guard lock(state_->mutex);
    if (!ready()) return state_->callbacks.push_back(std::move(callback));
  }
  call_back(callback);
}

}  // namespace tutti

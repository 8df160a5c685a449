#include "comm/progress.h"

#include <system_error>
#include <utility>

#include "core/error.h"

namespace tutti {

bool Future::ready() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Future::wait() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

ProgressThread::ProgressThread(Run run) : run_(std::move(run)) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw_system_error("starting the thread that runs what was started", error.code().value());
  }
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<Future::State> ProgressThread::start(const Call& call) {
  auto state = std::make_shared<Future::State>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({KeptCall(call), state});
  }
  changed_.notify_all();
  return state;
}

void ProgressThread::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void ProgressThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Item item = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      run_(item.call.call());
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard state_lock(item.state->mutex);
      item.state->done = true;
      item.state->error = error;
    }
    item.state->changed.notify_all();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace tutti

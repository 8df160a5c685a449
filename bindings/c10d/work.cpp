#include "work.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "errors.h"
#include "python.h"

namespace tutti::pytorch {

Work::Work(Operation operation, int rank, std::uint64_t sequence, int parts,
           std::chrono::milliseconds timeout)
    : ::c10d::Work(rank, operation.type, operation.name,
                   std::optional<std::vector<at::Tensor>>(operation.results)),
      operation_(std::move(operation)),
      sequence_(sequence),
      timeout_(timeout),
      left_(parts) {}

void Work::end(const std::optional<Error>& why) {
  if (why) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = why;
  }
  if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  std::exception_ptr thrown;
  if (error_) {
    thrown = std::make_exception_ptr(as_torch(*error_));
  } else {
    try {
      const at::NoGradGuard no_grad;
      operation_.finish();
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  complete(thrown);
}

void Work::complete(std::exception_ptr why) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::vector<c10::intrusive_ptr<Work>> others;
  {
    const std::lock_guard lock(mutex_);
    if (recordFunctionEndCallback_) {  // before anybody can end the recording
      recordFunctionEndCallback_();
      recordFunctionEndCallback_ = nullptr;
    }
    exception_ = why;
    completed_ = true;
    ended_ = std::chrono::steady_clock::now();
    future = future_;
    others.swap(others_);
  }
  cv_.notify_all();
  for (const auto& other : others) other->end(error_);
  if (future) {
    run_elsewhere(
        [self = c10::intrusive_ptr<Work>::reclaim_copy(this), future] { self->fulfil(*future); });
  }
}

void Work::then_end(const c10::intrusive_ptr<Work>& other) {
  {
    const std::lock_guard lock(mutex_);
    if (!completed_) {
      others_.push_back(other);
      return;
    }
  }
  other->end(error_);
}

void Work::fulfil(c10::ivalue::Future& future) const {
  if (exception_) {
    future.setError(exception_);
  } else {
    future.markCompleted(c10::IValue(operation_.results));
  }
}

void Work::record_event() {
  event_.emplace(operation_.device.type());
  const c10::impl::VirtualGuardImpl guard(operation_.device.type());
  event_->record(guard.getStream(operation_.device));
}

bool Work::isCompleted() {
  {
    const std::lock_guard lock(mutex_);
    if (!completed_) return false;
  }
  return !event_ || event_->query();
}

bool Work::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

int Work::sourceRank() const {
  const int source = source_.load(std::memory_order_acquire);
  TORCH_CHECK(source >= 0, "sourceRank: this is no finished recv");
  return source;
}

void Work::synchronize() {
  if (!event_) return;
  const c10::impl::VirtualGuardImpl guard(operation_.device.type());
  event_->block(guard.getStream(operation_.device));
}

bool Work::wait(std::chrono::milliseconds timeout) {
  {
    using Clock = std::chrono::steady_clock;
    std::unique_lock lock(mutex_);
    constexpr std::chrono::milliseconds kEver = std::chrono::hours(24 * 365), kMoment(50);
    const auto end = Clock::now() + (timeout.count() > 0 ? std::min(timeout, kEver) : kEver);
    const auto over = [&] { return completed_; };
    while (look_ && !over() && Clock::now() < end) {
      lock.unlock();
      look_();
      lock.lock();
      wait_until(lock, cv_, std::min(end, Clock::now() + kMoment), over);
    }
    if (!wait_until(lock, cv_, end, over)) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str(operation_.name, ": Timed out waiting ", timeout.count(),
                               "ms: it was not over then, and goes on"));
    }
    if (exception_) std::rethrow_exception(exception_);
  }
  synchronize();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    std::vector<c10::Device> devices;
    if (event_) devices.push_back(operation_.device);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::move(devices));
    if (!completed_) return future_;  // complete() fulfils it
    future = future_;
  }
  fulfil(*future);
  return future;
}

float Work::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_, "getDuration: the operation is not over yet");
  return std::chrono::duration<float, std::milli>(ended_ - began_).count();
}

namespace {

/// Threads that run what may block: as many as are blocked, and one more.
class Threads {
 public:
  void run(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size()) {
      changed_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  static constexpr std::size_t kKept = 2;  // threads that wait for more

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (jobs_.empty()) {
        if (idle_ >= kKept) return;
        ++idle_;
        changed_.wait(lock, [&] { return !jobs_.empty(); });
        --idle_;
      }
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
};

}  // namespace

void run_elsewhere(std::function<void()> job) {
  static auto* const threads = new Threads;  // never destroyed: its threads run until the exit
  threads->run(std::move(job));
}

}  // namespace tutti::pytorch

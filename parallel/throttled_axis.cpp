#include "parallel/throttled_axis.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "comm/call.h"

namespace tutti::parallel {

/// An operation that may still take time on the link.
class ThrottledAxis::Delayed {
 public:
  Delayed(const Call& call, Clock::time_point at) : at_(at), kept_(call) {}

  Clock::time_point at() const { return at_; }
  /// When its time has come.
  void begin(Axis& axis, std::mutex& axis_mutex) {
    const std::lock_guard lock(mutex_);
    try {
      const std::lock_guard axis_lock(axis_mutex);
      pending_ = axis.start(kept_.call());
    } catch (...) {
      error_ = std::current_exception();
    }
    begun_ = true;
    changed_.notify_all();
    for (const auto& callback : callbacks_) pending_.on_ready(callback);
  }
  bool on_ready(const std::function<void()>& callback) {
    const std::lock_guard lock(mutex_);
    if (begun_) return pending_.on_ready(callback);
    callbacks_.push_back(callback);
    return true;
  }
  bool ready() {
    const std::lock_guard lock(mutex_);
    return begun_ && pending_.ready();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_; });
    if (error_) std::rethrow_exception(error_);
    Pending pending = std::move(pending_);
    lock.unlock();
    pending.wait();
  }

 private:
  const Clock::time_point at_;
  const KeptCall kept_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  Pending pending_;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;  // until it has begun
};

ThrottledAxis::ThrottledAxis(Axis& beneath, LinkSpeed speed)
    // The axis beneath says in its errors on which axis it failed.
    : Axis(beneath.rank(), beneath.size(), {.ranks = beneath.axis_name().ranks}),
      beneath_(beneath),
      speed_(speed),
      thread_([this] { work(); }) {}

ThrottledAxis::~ThrottledAxis() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::chrono::nanoseconds ThrottledAxis::time_of(const Call& call) const {
  const Traffic::Count bytes = traffic_of(call, rank(), size());
  if (call.collective == Collective::send_recv && !call.sends) return {};
  return speed_.latency + std::chrono::nanoseconds(static_cast<std::int64_t>(
                              1e9 * static_cast<double>(bytes.sent) / speed_.bytes_per_second));
}

std::unique_ptr<Pending::Work> ThrottledAxis::begin(const Call& call) {
  struct Work final : Pending::Work {
    explicit Work(std::shared_ptr<Delayed> what) : delayed(std::move(what)) {}
    bool ready() override { return delayed->ready(); }
    void wait() override { delayed->wait(); }
    bool on_ready(const std::function<void()>& callback) override {
      return delayed->on_ready(callback);
    }
    std::shared_ptr<Delayed> delayed;
  };
  const bool receives = call.collective == Collective::send_recv && !call.sends;
  if (!receives) free_ = std::max(free_, Clock::now()) + time_of(call);
  auto delayed = std::make_shared<Delayed>(call, free_);
  if (receives) {
    delayed->begin(beneath_, beneath_mutex_);
  } else {
    const std::lock_guard lock(mutex_);
    queue_.push_back(delayed);
  }
  changed_.notify_all();
  return std::make_unique<Work>(std::move(delayed));
}

void ThrottledAxis::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Delayed> next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::this_thread::sleep_until(next->at());
    next->begin(beneath_, beneath_mutex_);
    lock.lock();
  }
}

}  // namespace tutti::parallel

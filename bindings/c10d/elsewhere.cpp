#include "elsewhere.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <thread>
#include <utility>

#include "process.h"

namespace tutti::pytorch {
namespace {

/// Threads that run what may block: as many as are blocked, and one more.
class Threads {
 public:
  /// Never destroyed: its threads run until the exit.
  static Threads& of_this_process() {
    static std::atomic<Threads*> newest{new Threads};
    Threads* threads = newest;
    while (threads->process_ !=
           process_id()) {  // a child has neither its parent's threads nor jobs
      auto own = std::make_unique<Threads>();
      if (newest.compare_exchange_strong(threads, own.get())) threads = own.release();
    }
    return *threads;
  }

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
  const pid_t process_ = process_id();
};

}  // namespace

void run_elsewhere(std::function<void()> job) { Threads::of_this_process().run(std::move(job)); }

void InOrder::run(std::function<void()> job) {
  {
    const std::lock_guard lock(jobs_->mutex);
    jobs_->waiting.push_back(std::move(job));
    if (std::exchange(jobs_->running, true)) return;
  }
  run_elsewhere([jobs = jobs_] {
    std::unique_lock lock(jobs->mutex);
    while (!jobs->waiting.empty()) {
      {
        const std::function<void()> next = std::move(jobs->waiting.front());
        jobs->waiting.pop_front();
        lock.unlock();
        next();
      }
      lock.lock();
    }
    jobs->running = false;
  });
}

}  // namespace tutti::pytorch

// How a rank that waits for any of several things hears that one of them has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tutti::parallel::reshard {

/// Counts what ends, and wakes the rank.
class Events {
 public:
  void happened() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_one();
  }
  std::uint64_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  /// Returns once count() is no longer `seen`; false at the deadline.
  bool wait(std::uint64_t seen, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const auto news = [&] { return count_ != seen; };
    if (deadline != std::chrono::steady_clock::time_point::max()) {
      return changed_.wait_until(lock, deadline, news);
    }
    changed_.wait(lock, news);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
};

}  // namespace tutti::parallel::reshard

// Whether results are written past the caches, where their size does not tell. An L3 cache of a
// virtual machine is shared with others: results as large as all of it stay there in one minute,
// and do not in the next (docs/experiments.md#about-the-size-of-the-l3-cache-both-ways-are-tried).
// So a loop of calls tries the other way now and then: several calls in a row, as the first of them
// find what the way before has left in the caches. Ranks with the same calls try at the same time;
// each decides for itself.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

class WriteTrial {
 public:
  /// `guess`: what is done until the other way has been tried.
  explicit WriteTrial(bool guess) : best_(guess) {}

  /// Of the next call: whether it writes past the caches.
  bool next() {
    call_ = calls_++ % kPeriod;
    return tries() != best_;
  }
  /// How long that call took.
  void took(double nanoseconds) {
    const std::uint64_t end = kStart + kRun;
    if (tries() && call_ >= end - kRun / 2) other_.add(nanoseconds);
    if (!tries() && call_ >= kStart / 2 && call_ < kStart) usual_.add(nanoseconds);
    if (call_ + 1 != end) return;
    if (other_.mean() < 0.95 * usual_.mean()) best_ = !best_;
    usual_ = other_ = {};
  }

 private:
  static constexpr std::uint64_t kPeriod = 256;
  static constexpr std::uint64_t kStart = 32;  // in each period, the second half of which count
  static constexpr std::uint64_t kRun = 8;     // then these go the other way; their second half too

  /// Without the longest, which may have been interrupted.
  struct Times {
    double sum = 0, longest = 0;
    int count = 0;
    void add(double time) {
      sum += time;
      longest = std::max(longest, time);
      ++count;
    }
    double mean() const { return (sum - longest) / std::max(count - 1, 1); }
  };

  /// Whether the newest call goes the other way.
  bool tries() const { return call_ >= kStart && call_ < kStart + kRun; }

  std::uint64_t calls_ = 0;
  std::uint64_t call_ = 0;  // the newest's number in its period
  bool best_;
  Times usual_, other_;
};

}  // namespace tutti

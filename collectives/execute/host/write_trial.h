// Whether results are written past the caches, where their size does not tell. An L3 cache of a
// virtual machine is shared with others: results as large as all of it stay there in one minute,
// and do not in the next (docs/performance.md). So a loop of calls tries the other way now and
// then: several calls in a row, as the first of them find what the way before has left in the
// caches. Ranks with the same calls try at the same time; each decides for itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti {

class WriteTrial {
 public:
  /// `guess`: what is done until the other way has been tried.
  explicit WriteTrial(bool guess) : best_(guess) {}

  /// Of the next call: whether it writes past the caches.
  bool next() {
    const std::uint64_t call = calls_++ % kPeriod;
    tries_ = call >= kStart && call < kStart + kRun;
    counts_ = tries_ ? call >= kStart + kRun / 2 : call >= kStart / 2 && call < kStart;
    ends_ = call == kStart + kRun - 1;
    return tries_ ? !best_ : best_;
  }
  /// How long that call took.
  void took(double nanoseconds) {
    if (counts_) times_[tries_ ? 1 : 0].add(nanoseconds);
    if (!ends_) return;
    if (times_[1].mean() < 0.95 * times_[0].mean()) best_ = !best_;
    times_ = {};
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

  std::uint64_t calls_ = 0;
  bool best_;
  bool tries_ = false, counts_ = false, ends_ = false;
  std::array<Times, 2> times_{};  // of the better way so far, and of the other
};

}  // namespace tutti

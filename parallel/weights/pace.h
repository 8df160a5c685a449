// Whether coding pays: what a byte costs on the link, and what the coder takes for it, both as
// measured. Coding, sending and decoding go side by side, so a coder pays as long as it is faster
// than the link.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti::parallel::weights {

/// Nanoseconds for a byte. One thread at a time.
class Pace {
 public:
  Pace() = default;
  explicit Pace(double measured) : ns_(measured) {}

  bool known() const { return ns_ > 0; }
  double ns() const { return ns_; }
  /// Takes a measurement in: later ones count for more. The first two of a coder are of cold
  /// memory, and do not count.
  void add(std::chrono::nanoseconds time, std::size_t bytes) {
    if (bytes == 0 || ++seen_ <= 2) return;
    const double now = static_cast<double>(time.count()) / static_cast<double>(bytes);
    ns_ = known() ? (3 * ns_ + now) / 4 : now;
  }
  /// Whether this one takes less time than `other`. What is not known is tried, and what is slower
  /// is tried again now and then.
  bool keeps_up_with(const Pace& other) {
    return !known() || !other.known() || ns_ < other.ns_ || ++refused_ % 16 == 0;
  }

 private:
  double ns_ = 0;  // 0: not measured
  std::uint64_t seen_ = 0, refused_ = 0;
};

}  // namespace tutti::parallel::weights

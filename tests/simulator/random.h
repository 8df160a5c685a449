// The source of all chance in a history: the same seed gives the same numbers, on every machine.
#pragma once

#include <cstdint>

namespace tutti::simulator {

/// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// Less than `limit`, which is positive.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  /// True once in `many` times.
  bool once_in(std::uint64_t many) { return below(many) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::simulator

// Whether a version goes plain or coded, learnt from what versions have taken: coding is work on
// both sides, and what a link carries in the moment of a meeting says little of a long run.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::parallel::weights {

/// The first versions are coded, and it stays so as long as they take less time than plain ones, of
/// which there is a guess at first. The other way is tried now and then, in longer and longer
/// distances; plain only where it might be faster. One thread at a time.
class WayChoice {
 public:
  using Time = std::chrono::nanoseconds;
  /// `plain`: the guess.
  explicit WayChoice(Time plain) : plain_time_(plain) {}

  /// Whether the next version is coded.
  bool coded() const { return coded_; }
  /// That version has taken so long.
  void took(Time time);

 private:
  void turn();

  bool coded_ = true;
  bool fresh_ = true;  // no version of this way has counted since the last turn
  Time plain_time_, coded_time_{0};
  std::uint64_t versions_ = 0;  // all
  std::uint64_t in_row_ = 0;    // since the last turn
  std::uint64_t wait_ = 32;     // in a row, before the other way is tried
};

}  // namespace tutti::parallel::weights

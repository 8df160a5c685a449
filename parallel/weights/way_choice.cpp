#include "parallel/weights/way_choice.h"

#include <algorithm>
#include <utility>

namespace tutti::parallel::weights {
namespace {

constexpr std::uint64_t kCold = 2;        // versions: each set of buffers is new once
constexpr int kHopeless = 8;              // plain is not tried if it takes so many times longer
constexpr std::uint64_t kLongest = 1024;  // wait for a trial

}  // namespace

void WayChoice::turn() {
  coded_ = !coded_;
  fresh_ = true;
  in_row_ = 0;
}

void WayChoice::took(Time time) {
  ++versions_;
  ++in_row_;
  // After a plain version, a coded one has nothing to which it compares, and goes whole.
  if (versions_ <= kCold || (coded_ && in_row_ == 1)) return;
  const bool first = std::exchange(fresh_, false);
  Time& average = coded_ ? coded_time_ : plain_time_;
  average = first ? time : (3 * average + time) / 4;
  if (coded_ && coded_time_ >= plain_time_) return turn();
  // The guess was too good. Otherwise trials alone lead back: a slow version is no reason.
  if (!coded_ && first && 11 * coded_time_ < 10 * plain_time_) return turn();
  if (in_row_ < wait_ || (coded_ && plain_time_ > kHopeless * coded_time_)) return;
  wait_ = std::min(2 * wait_, kLongest);
  turn();
}

}  // namespace tutti::parallel::weights

// When the steps of a plan run, if every step that moves data takes one unit of time and a message
// takes half a unit: not a prediction, but the shape of the algorithm. The drawing is made of this.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/model/simulate.h"
#include "collectives/plan.h"

namespace tutti::drawing {

inline constexpr double kDataStep = 1.0;
inline constexpr double kSignalStep = 0.5;  // without data: a box half as wide
inline constexpr double kFlight = 0.5;      // from the sender's end to the receiver's start

struct StepId {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
};

using StepTime = Course::Span;

/// One message's way.
struct Arrow {
  StepId sender;
  StepId receiver;
};

struct Schedule {
  std::vector<std::vector<std::vector<StepTime>>> times;  // by rank, lane, step
  std::vector<Arrow> messages;
  double end = 0;
  std::uint64_t steps = 0;
  std::uint64_t never_start = 0;  // steps that wait for ever: the plan is in deadlock

  const StepTime& at(const StepId& id) const { return times[id.rank][id.lane][id.step]; }
};

/// Every step starts as soon as its lane is free, its messages are there, and the slots that it
/// fills are free. Accepts any plan, also one that the verifier would reject.
Schedule make_schedule(const Plan& plan);

}  // namespace tutti::drawing

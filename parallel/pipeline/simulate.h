// How long a schedule takes, and how long ranks are idle.
#pragma once

#include <vector>

#include "costs.h"
#include "schedule.h"

namespace tutti::parallel::pipeline {

struct Simulation {
  struct Rank {
    double first = 0, last = 0;   // when it begins its first action, and ends its last one
    double busy = 0, bubble = 0;  // between these: what it works, and what it waits
  };
  double makespan = 0;  // from the start until the last rank has ended
  // The most that a rank is idle between its first action and its last one. The literature calls
  // this the bubble. Before and after, a rank can end the previous batch, or begin the next one,
  // unless all wait for each other in between.
  double bubble = 0;
  std::vector<Rank> ranks;
};

/// Simulates a proved schedule; throws Error(unproven_plan) for any other.
Simulation simulate(const Schedule& schedule, const Costs& costs);

}  // namespace tutti::parallel::pipeline

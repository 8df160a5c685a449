// How long a schedule takes, and who is idle.
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
  // The most that a rank is idle between its first action and its last one. That is what the
  // literature calls the bubble: before and after, a rank can end the batch before, or begin the
  // next one, unless all wait for each other in between.
  double bubble = 0;
  std::vector<Rank> ranks;
};

/// Of a schedule that is proved; throws Error(unproven_plan) for another one.
Simulation simulate(const Schedule& schedule, const Costs& costs);

}  // namespace tutti::parallel::pipeline

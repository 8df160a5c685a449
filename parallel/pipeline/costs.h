// The times of the actions and messages of a schedule, for the simulator and for pictures.
#pragma once

#include "schedule.h"

namespace tutti::parallel::pipeline {

/// Times, in any unit.
struct Costs {
  double forward = 1;
  double backward_inputs = 1;
  double backward_weights = 1;  // a backward in one takes both
  double link = 0;              // a message; those of a rank to another go one after the other
  double of(Work work) const;
};

}  // namespace tutti::parallel::pipeline

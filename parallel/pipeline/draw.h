// A schedule as a picture (SVG): a row for each rank, time to the right, a box for each action,
// coloured by its work and shaded by its stage, with the number of its micro-batch. Waits between a
// rank's first and last action, the bubble, are hatched.
#pragma once

#include <string>

#include "costs.h"
#include "schedule.h"

namespace tutti::parallel::pipeline {

/// Also draws a schedule in deadlock: it leaves out actions that never start, and says so. Throws
/// Error(invalid_argument) for a schedule with more than 100,000 actions, and Error(unproven_plan)
/// for one with incomplete actions or an impossible order (Verdict::matches).
std::string draw_svg(const Schedule& schedule, const Costs& costs);

}  // namespace tutti::parallel::pipeline

// Random schedules, and what runs a schedule by the rules of parallel/pipeline/schedule.h without
// any of its code, for tests.
#pragma once

#include <random>
#include <string>

#include "parallel/pipeline/schedule.h"

namespace tutti::test {

/// A schedule that is complete and in order, of any placement, with any buffers: it may deadlock.
parallel::pipeline::Schedule random_schedule(std::mt19937& random, int ranks);

/// Runs it, event by event, in a random order. "" if all goes well; else what went wrong.
std::string interpret(const parallel::pipeline::Schedule& schedule, std::mt19937& random);

}  // namespace tutti::test

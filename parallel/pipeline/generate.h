// The schedules that Tutti knows by name, each a function from numbers to a Schedule.
//
// Zero-bubble schedules assume actions that take equally long (a forward as long as each part of a
// backward). They are right for any times, and simulate.h gives their costs then.
#pragma once

#include <span>
#include <string_view>

#include "schedule.h"

namespace tutti::parallel::pipeline {

struct Request {
  int ranks = 1;
  int micro_batches = 1;
  int chunks = 0;  // stages of each rank; 0: as many as is usual for the schedule
};

struct Generator {
  std::string_view name;
  std::string_view summary;
  int chunks = 1;           // those that it has, ...
  bool any_chunks = false;  // ... or has, if nothing else is asked for
  std::string_view bubble;  // of p ranks, for the times of one rank's share of the model
  std::string_view live;    // activations of one rank's share of the model
  Schedule (*make)(const Request& request);
};

std::span<const Generator> generators();
/// nullptr if no schedule has that name.
const Generator* find_generator(std::string_view name);

/// Throws Error(invalid_argument) for numbers out of range. The result is proved, for every request
/// that the tests try. `buffers` and `live` are the least numbers with which the proof holds and no
/// action starts later, if a message takes half as long as a forward.
Schedule generate(const Generator& generator, const Request& request);

}  // namespace tutti::parallel::pipeline

// When the actions of a schedule run and its messages move, by the rules of schedule.h: each starts
// as soon as it can. Whatever the times, the same actions can start, so that a timeline that ends
// proves that there is no deadlock, and one that does not says who waits for whom.
#pragma once

#include <vector>

#include "collectives/model/simulate.h"
#include "parallel/pipeline/costs.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

using Span = Course::Span;

struct Timeline {
  std::vector<std::vector<Span>> actions;  // by rank, action
  std::vector<Span> messages;              // by message: from its departure to its arrival; of a
                                           // local one both are the end of its action
  int never_start = 0;                     // actions: those of a deadlock, and what waits for them
  double end = 0;
};

/// Where a rank waits between its first action and the last that starts. A gap that is nothing but
/// the rounding of times is none.
std::vector<Span> waits_of(const Timeline& timeline, int rank);

/// `messages`: messages_of(schedule).
Timeline timeline_of(const Schedule& schedule, const Messages& messages, const Costs& costs);

/// Of a timeline that does not end: who waits for whom, in words.
std::string story_of_deadlock(const Schedule& schedule, const Messages& messages,
                              const Timeline& timeline);

}  // namespace tutti::parallel::pipeline

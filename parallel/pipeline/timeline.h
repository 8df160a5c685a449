// When the actions of a schedule run and its messages move, by the rules of schedule.h: each starts
// as soon as it can. The same actions can start whatever the times. So a timeline that ends proves
// that there is no deadlock, and one that does not end shows which rank waits for which.
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

/// Where a rank waits between its first action and the last that starts. A gap that comes only from
/// rounding does not count.
std::vector<Span> waits_of(const Timeline& timeline, int rank);

/// `messages`: messages_of(schedule).
Timeline timeline_of(const Schedule& schedule, const Messages& messages, const Costs& costs);

/// For a timeline that does not end: which rank waits for which, in words.
std::string story_of_deadlock(const Schedule& schedule, const Messages& messages,
                              const Timeline& timeline);

}  // namespace tutti::parallel::pipeline

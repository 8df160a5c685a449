#include "parallel/pipeline/simulate.h"

#include <algorithm>

#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  require_proof(schedule);
  const Timeline timeline = timeline_of(schedule, messages_of(schedule), costs);
  Simulation result;
  result.makespan = timeline.end;
  for (int r = 0; r < schedule.ranks(); ++r) {
    const auto& spans = timeline.actions[index(r)];
    Simulation::Rank rank;
    if (!spans.empty()) {
      rank.first = spans.front().start;
      rank.last = spans.back().end;
    }
    for (const Span& s : spans) rank.busy += s.end - s.start;
    for (const Span& wait : waits_of(timeline, r)) rank.bubble += wait.end - wait.start;
    result.bubble = std::max(result.bubble, rank.bubble);
    result.ranks.push_back(rank);
  }
  return result;
}

}  // namespace tutti::parallel::pipeline

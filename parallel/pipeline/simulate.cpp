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
  for (const auto& spans : timeline.actions) {
    Simulation::Rank rank;
    if (!spans.empty()) {
      rank.first = spans.front().start;
      rank.last = spans.back().end;
    }
    for (const Span& s : spans) rank.busy += s.end - s.start;
    result.bubble = std::max(result.bubble, rank.bubble());
    result.ranks.push_back(rank);
  }
  return result;
}

}  // namespace tutti::parallel::pipeline

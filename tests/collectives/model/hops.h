// How many messages of a plan follow one from the other: the time of a plan whose steps cost
// nothing and whose messages take 1.
#pragma once

#include "collectives/model/host_scenario.h"

namespace tutti::test {

/// `messages`: which ones take that time, by its latencies.
inline double hops_of(const Plan& plan, SimulationOptions messages) {
  StepCosts nothing;
  for (const RankPlan& rank : plan.ranks) {
    nothing.emplace_back();
    for (const auto& lane : rank.lanes) nothing.back().emplace_back(lane.size(), 0.0);
  }
  messages.slots = 64;
  messages.cores = plan.header.ranks;
  return simulate(plan, nothing, messages);
}

}  // namespace tutti::test

// Ranks on cores, as a scenario (simulate.h): cost.h decides the cost of each step; this file
// decides which ranks share a core, how far ranks are from each other, and what goes over the wires
// of hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/model/domains.h"
#include "collectives/model/simulate.h"
#include "collectives/plan.h"

namespace tutti {

/// A value for each step: by rank, lane, step.
template <class T>
using OfSteps = std::vector<std::vector<std::vector<T>>>;
/// The cost of each step, in ns.
using StepCosts = OfSteps<double>;

struct SimulationOptions {
  std::size_t tiles = 1;                  // every lane repeats its steps for each
  std::size_t slots = 1;                  // of every link
  int cores = 1;                          // a rank runs on one of them until it has to wait
  static constexpr int kForEachLane = 0;  // cores: each lane has one, and credit is there at once
  // Where there are fewer cores than ranks: ranks 0, 1, ... share the first core; else ranks 0,
  // `cores`, 2 * `cores`, ...
  bool neighbours_share = false;
  double latency_ns = 0;      // from the end of a step until another rank sees its message, or...
  double far_latency_ns = 0;  // ... one in another domain
  const Domains* domains = nullptr;  // none: there is one
  double switch_ns = 0;              // when a core passes from one rank to another
  // Several hosts share the cores evenly. A message between them keeps the sender's wire busy, and
  // the receiver's, one after the other of each host's, and is there so much later.
  const Domains* hosts = nullptr;  // none: there is one
  double net_latency_ns = 0;
  const OfSteps<MessageCost>* messages =
      nullptr;  // each that a step sends, or takes; none: nothing
};

/// The plan as a scenario. The caller may change in it the tiles, and which ranks share a core.
Scenario host_scenario(const Plan& plan, const StepCosts& costs, const SimulationOptions& options);
/// Puts its ranks on other cores.
void place_on_cores(Scenario& scenario, const SimulationOptions& options);

/// The time from the start, which all ranks make together, until the last one has ended. The plan
/// must be free of deadlock with these slots; throws Error(internal) otherwise.
double time_of(const Scenario& scenario);
double simulate(const Plan& plan, const StepCosts& costs, const SimulationOptions& options);

}  // namespace tutti

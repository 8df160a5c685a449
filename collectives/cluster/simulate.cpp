// See simulate.h.
#include "collectives/cluster/simulate.h"

#include "collectives/cluster/scenario.h"
#include "core/error.h"

namespace tutti::cluster {

Simulated simulate(const Cluster& cluster, const PartOf& part, const SimulateOptions& options) {
  ClusterScenario c = scenario_of(cluster, part, options);
  Trace trace = tutti::simulate(c.scenario, options.record);
  if (trace.unfinished > 0) throw Error(ErrorCode::internal, "the simulated plan does not end");
  Simulated result;
  result.us = trace.end;
  result.unit = c.unit;
  result.moved = std::move(trace.moved);
  result.names = std::move(c.names);
  for (const double rate : c.scenario.rates) result.capacities.push_back(rate / 1000);
  for (const Trace::Flow& flow : trace.flows) {
    const auto workers = static_cast<int>(c.workers.size());
    const auto& worker = c.workers[static_cast<std::size_t>(flow.worker % workers)];
    const auto route = static_cast<std::size_t>(flow.route);
    result.record.push_back({worker.rank, worker.lane, flow.worker / workers, flow.span.start,
                             flow.span.end, flow.rate / 1000, c.ways[route],
                             c.scenario.routes[route].links});
  }
  return result;
}

}  // namespace tutti::cluster

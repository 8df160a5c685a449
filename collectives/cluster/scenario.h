// A plan on a cluster as a scenario (model/simulate.h): of those hosts that stand for all, which
// links each message takes, and how long it is on its way.
#pragma once

#include <string>
#include <vector>

#include "collectives/cluster/simulate.h"
#include "collectives/model/simulate.h"

namespace tutti::cluster {

struct ClusterScenario {
  struct OfWorker {
    int rank = 0, lane = 0;
  };
  int unit = 1;       // hosts that are looked at
  Scenario scenario;  // in us, bytes of data, and bytes per us
  std::vector<OfWorker> workers;
  std::vector<GpuWay> ways;        // by route
  std::vector<std::string> names;  // of links, for pictures
};

/// Throws Error(invalid_argument) for a plan that addresses other ranks' memory.
ClusterScenario scenario_of(const Cluster& cluster, const PartOf& part,
                            const SimulateOptions& options);

}  // namespace tutti::cluster

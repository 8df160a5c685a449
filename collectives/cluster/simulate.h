// When the steps of a plan run on a cluster: messages are flows that share links, each step begins
// when what it needs has arrived. Tiles of a call are under way together, earlier ones first.
//
// Where all hosts do the same, the parts of one host's ranks stand for all (Cluster, `unit`): a
// plan may then have 100,000 ranks. Whether they do is looked at, not assumed.
#pragma once

#include <functional>
#include <vector>

#include "collectives/cluster/cluster.h"
#include "collectives/model/simulate.h"
#include "collectives/plan.h"

namespace tutti::cluster {

/// Rank r's part, made when it is asked for.
using PartOf = std::function<RankPlan(int rank)>;

/// One message while it moved at one rate.
struct Moved {
  int rank = 0, lane = 0, tile = 0;
  double begin = 0, end = 0;  // us
  double rate = 0;            // GB/s of data
  GpuWay way = GpuWay::gpu_links;
  std::vector<int> links;  // of Simulation::names
};

struct SimulateOptions {
  double block_bytes = 0;  // of a block of the plan
  int tiles = 1;           // that are under way together
  GpuProtocol protocol = GpuProtocol::simple;
  bool at_once = false;  // a lane's sends that wait for nothing are under way together
  int unit = 0;          // hosts that are looked at; 0: as few as stand for all
  bool record = false;   // what moved when
};

struct Simulated {
  double us = 0;
  int unit = 0;               // hosts that were looked at
  std::vector<double> moved;  // bytes, by link
  std::vector<Moved> record;
  std::vector<std::string> names;  // of links
  std::vector<double> capacities;  // GB/s of data
};

/// Throws Error(internal) for a plan that does not end, Error(invalid_argument) for one that
/// addresses other ranks' memory.
Simulated simulate(const Cluster& cluster, const PartOf& part, const SimulateOptions& options);

/// A cluster's plan as a scenario (model/simulate.h): of those hosts that stand for all, which
/// links each message takes, and how long it is on its way.
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

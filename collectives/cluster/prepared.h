// A plan made ready for its simulation: of those hosts that stand for all, which links each message
// takes, and which messages each step waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/cluster/simulate.h"

namespace tutti::cluster {

/// A step as the simulation needs it: its sources and what it sends are `ends` from `first` on.
struct PreparedStep {
  std::uint32_t first = 0;
  std::uint16_t sources = 0, sends = 0;
  float chunks = 0;
};
/// A message's end.
struct PreparedEnd {
  int queue = 0;
  int route = 0;  // of sends; -1: none, it stays where it is
};
struct PreparedLane {
  std::uint32_t begin = 0, end = 0;  // steps
  int rank = 0, lane = 0;
};

struct PreparedPlan {
  int unit = 1;  // hosts that are looked at
  std::vector<PreparedLane> lanes;
  std::vector<PreparedStep> steps;
  std::vector<PreparedEnd> ends;
  std::vector<int> receivers;  // by queue: the lane; -1: nobody
  std::vector<Route> routes;
  std::vector<double> rates;       // of links, bytes of data per us
  std::vector<std::string> names;  // of links, for pictures
};

/// Throws Error(invalid_argument) for a plan that addresses other ranks' memory.
PreparedPlan prepare(const Cluster& cluster, const PartOf& part, const SimulateOptions& options);

}  // namespace tutti::cluster

// What tests of clusters share: clusters by their descriptions, and plans to simulate on them.
#pragma once

#include <string>

#include "collectives/algorithms.h"
#include "collectives/cluster/cluster.h"
#include "collectives/cluster/simulate.h"
#include "topology/describe.h"
#include "topology/discover.h"

namespace tutti::cluster {

inline topology::Graph machine(const std::string& text) {
  const topology::Described d = topology::parse_machine(text);
  topology::Records r =
      topology::records_of(topology::machine_xml(*d.model, d.count, 0, 0, d.bridged), text);
  return topology::graph_of(r);
}

inline Cluster cluster(const std::string& host, int hosts, const std::string& network = "ib 8x400G",
                       const GpuConstants& constants = {}) {
  return {machine(host), hosts, topology::parse_network(network), constants};
}

inline SimulateOptions options(double bytes, GpuProtocol p = GpuProtocol::simple, int unit = 0) {
  SimulateOptions o;
  o.block_bytes = bytes;
  o.protocol = p;
  o.unit = unit;
  return o;
}

inline PartOf plan_of(Collective c, const char* algorithm, int ranks, int group = 0) {
  PlanRequest request;
  request.collective = c;
  request.ranks = ranks;
  request.group = group;
  return [=, a = find_algorithm(c, algorithm)](int rank) { return a->generate(request, rank); };
}

}  // namespace tutti::cluster

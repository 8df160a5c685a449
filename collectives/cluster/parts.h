// Plans of the table of algorithms, laid out for a cluster: hosts are the groups of hierarchical
// ones, and ranks of a host stand in the orders that its links carry, lane by lane.
#pragma once

#include <vector>

#include "collectives/algorithms.h"
#include "collectives/cluster/orders.h"
#include "collectives/cluster/simulate.h"
#include "collectives/model/domains.h"

namespace tutti::cluster {

class Parts {
 public:
  /// The first order alone for algorithms without lanes.
  Parts(const Cluster& c, const Algorithm& algorithm, const Orders& orders);

  RankPlan operator()(int rank) const;

 private:
  const Algorithm& algorithm_;
  PlanRequest request_;
  std::vector<Domains> lanes_;
};

/// Bytes of a block of the plan for a call with so many, as nccl-tests counts them.
double block_of(Collective collective, double bytes, int ranks);

/// Of a call of ours: 1, 4, 16, ... tiles, none smaller than that many bytes of it.
constexpr int kMostTiles = 256;
constexpr double kLeastTile = 65536;
/// us without what the call itself takes. `at_once`: as in SimulateOptions.
double time_of(const Cluster& c, const PartOf& part, double block, GpuProtocol protocol, int tiles,
               bool at_once = false);
/// us that the busiest link needs for what goes over it, by Simple: nothing is faster, in however
/// many tiles.
double least_time(const Cluster& c, const PartOf& part, double block);

}  // namespace tutti::cluster

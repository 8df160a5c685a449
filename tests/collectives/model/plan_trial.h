// Every plan that there is for a cluster, tried: the yardstick for a choice among few.
#pragma once

#include "collectives/cluster/cluster.h"
#include "collectives/model/predict.h"
#include "topology/graph.h"

namespace tutti::test {

struct Trial {
  Prediction best;
  long tried = 0,
       hopeless = 0;  // simulated; left out because a link alone takes longer than `best`
};

/// All algorithms without windows, protocols, powers of two of tiles, and layouts: each order of
/// the host's GPUs that the graph's search found, as lanes and alone, the ranks' own order and
/// others (all of them up to four GPUs, else some by chance), 1 to 16 lanes. `start`: what is
/// known.
Trial try_all(const cluster::Cluster& cluster, const Workload& call, const Prediction& start);

}  // namespace tutti::test

// Which of Tutti's own plans is the fastest on a cluster: algorithm, protocol and tiles, laid out
// by the orders that the graph carries. (What NCCL would do is in laboratory/predict/nccl_model.h.)
#pragma once

#include "collectives/cluster/cluster.h"
#include "collectives/model/predict.h"

namespace tutti::cluster {

/// Tries each algorithm with few of its settings, so that the choice takes a small part of what all
/// of them would. Plans that address other ranks' memory are left out. Throws
/// Error(invalid_argument) where no plan can do it.
Prediction choose(const Cluster& cluster, const Workload& workload);

}  // namespace tutti::cluster

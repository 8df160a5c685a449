// How long a collective of NCCL takes on a cluster: the fastest of the algorithms that NCCL has
// published and of its protocols, each simulated as a plan (simulate.h). Reductions in switches are
// no plan; they have a closed form.
#pragma once

#include <string>
#include <vector>

#include "collectives/cluster/simulate.h"
#include "collectives/collective.h"

namespace tutti::cluster {

struct Prediction {
  double us = 0;
  std::string algorithm{};
  Protocol protocol = Protocol::simple;
  int tiles = 1;
  std::vector<std::vector<int>> orders{};  // of its lanes (parts.h); none: the cluster's
};

struct Call {
  Collective collective = Collective::all_reduce;
  double bytes = 0;         // as nccl-tests counts them: of the larger buffer
  int gpus_of_thread = 1;   // nccl-tests' -g: launched one after the other
  std::string algorithm{};  // only this one; empty: the fastest
  bool copy_engines = false;
};

/// Each algorithm with its fastest protocol, the fastest first; or as copy engines do it. Throws
/// Error(invalid_argument) for collectives that NCCL does not have so, names that there are not,
/// and copy engines where they do not reach.
std::vector<Prediction> predict(const Cluster& cluster, const Call& call);

/// One run of it, recorded for pictures. Not of reductions in switches.
Simulated simulate(const Cluster& cluster, const Call& call, const Prediction& prediction,
                   bool record);

/// busbw / algbw, as nccl-tests defines them.
double bus_factor(Collective collective, int ranks);

}  // namespace tutti::cluster

// How long a collective of NCCL takes on a cluster: the fastest of the algorithms that NCCL has
// published and of its protocols, each simulated as a plan
// (cluster/simulate.h). Reductions in switches are
// no plan; they have a closed form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cluster/simulate.h"
#include "collectives/model/predict.h"
#include "laboratory/predict/nccl_constants.h"

namespace tutti {

/// A call as nccl-tests makes it.
struct NcclCall {
  Collective collective = Collective::all_reduce;
  double bytes = 0;                       // as nccl-tests counts them: of the larger buffer
  int gpus_of_thread = 1;                 // nccl-tests' -g: launched one after the other
  std::string algorithm{};                // only this one; empty: the fastest
  std::optional<GpuProtocol> protocol{};  // only this one
  bool switches = true;                   // may reduce, if they can
  bool copy_engines = false;
  NcclConstants nccl{};
};

/// Each algorithm with its fastest protocol, the fastest first; or as copy engines do it. Throws
/// Error(invalid_argument) for collectives that NCCL does not have so, names that there are not,
/// and copy engines where they do not reach.
std::vector<Prediction> predict_nccl(const cluster::Cluster& cluster, const NcclCall& call);
/// What a thread that starts several GPUs adds.
double us_of_launches(const cluster::Cluster& cluster, const NcclCall& call);

/// By what it is done: a plan of that name, or "switch".
std::string_view algorithm_of(const Prediction& prediction);

/// One run of it, recorded for pictures. Not of reductions in switches.
cluster::Simulated simulate_nccl(const cluster::Cluster& cluster, const NcclCall& call,
                                 const Prediction& prediction, bool record);

}  // namespace tutti

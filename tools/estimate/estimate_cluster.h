// What a call costs along an axis of a described cluster, for the estimator: by the same cost model
// that chooses plans.
#pragma once

#include <map>
#include <tuple>

#include "collectives/model/gpu_constants.h"
#include "parallel/estimate/time.h"
#include "tools/cluster/cluster_setup.h"

namespace tutti {

class ClusterCosts {
 public:
  ClusterCosts(const ClusterSetup& setup, const GpuConstants& constants)
      : setup_(setup), constants_(constants) {}

  /// Predicted once for each collective and place, at two sizes. Of more than four hosts it
  /// predicts four: the rate is theirs, and the latency grows with the logarithm of their number.
  parallel::estimate::CallCost operator()(Collective collective,
                                          const parallel::estimate::AxisPlace& at);

 private:
  parallel::estimate::CallCost predicted(Collective collective,
                                         const parallel::estimate::AxisPlace& at) const;

  const ClusterSetup setup_;
  const GpuConstants constants_;
  std::map<std::pair<Collective, parallel::estimate::AxisPlace>, parallel::estimate::CallCost>
      known_;
};

}  // namespace tutti

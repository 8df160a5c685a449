// What a call costs along an axis of a described cluster, for the estimator: by the same cost model
// that chooses plans.
#pragma once

#include <cstddef>
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

  /// Predicted once for each collective, on so many ranks of one host or of two, at two sizes. Of
  /// more hosts the rate is that of two, and the latency grows with the logarithm of their number.
  /// A first call of its kind takes a second or so, and says so on a terminal.
  parallel::estimate::CallCost operator()(Collective collective,
                                          const parallel::estimate::AxisPlace& at);
  std::size_t predictions() const { return known_.size(); }

 private:
  struct Alone {  // of one group of ranks
    parallel::estimate::CallCost cost;
    double ports = 0;  // GB/s of a host's, all together
  };
  Alone predicted(Collective collective, int in_host, int hosts) const;

  const ClusterSetup setup_;
  const GpuConstants constants_;
  std::map<std::tuple<Collective, int, int>, Alone> known_;  // by ranks of a host, and hosts
};

}  // namespace tutti

// Which algorithm runs a call, where the user did not say: the one with the least predicted time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/model/predict.h"

namespace tutti {

/// An algorithm and what is expected of it.
struct Candidate {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
};

/// The choices of one communicator. They depend on nothing but the platform and the arguments, so
/// ranks with the same platform choose alike; those of one process share what they have chosen.
/// Thread-safe.
class Chooser {
 public:
  explicit Chooser(const Platform& platform);

  /// Remembered per power of two of the bytes, and predicted for that power.
  const Algorithm& choose(const Workload& workload);
  /// All that are possible, for exactly these bytes, the best first.
  std::vector<Candidate> candidates(const Workload& workload);
  /// Whether it can run on these hosts: its plan addresses no memory of another one. Remembered.
  bool may_run(const Algorithm& algorithm);
  /// rounds_once() of its plan for this many ranks; remembered.
  bool rounds_once(const Algorithm& algorithm);

 private:
  struct Memory;
  /// With the memory's lock held:
  bool may_run_there(const Algorithm& algorithm);
  bool rounds_once_there(const Algorithm& algorithm);
  /// Without access to others' memory there is no need to look at plans over windows.
  bool may_serve(const Algorithm& algorithm, const Workload& workload) {
    return algorithm.collective == workload.collective &&
           (!algorithm.windows || workload.access != Access::none) && may_run_there(algorithm) &&
           (!workload.round_once || rounds_once_there(algorithm));
  }

  std::shared_ptr<Memory> memory_;
};

}  // namespace tutti

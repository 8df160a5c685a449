// Which algorithm runs a call, where the user did not say: the one with the least predicted time.
#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/model/predict.h"

namespace tutti {

/// An algorithm and what is expected of it.
struct Candidate {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
};

/// The choices of one communicator. They depend on nothing but the platform and the arguments, so
/// ranks with the same platform choose alike. Not thread-safe.
class Chooser {
 public:
  explicit Chooser(const Platform& platform) : platform_(platform) {}

  /// Remembered per power of two of the bytes, and predicted for that power.
  const Algorithm& choose(const Workload& workload);
  /// All that are possible, for exactly these bytes, the best first.
  std::vector<Candidate> candidates(const Workload& workload);
  /// rounds_once() of its plan for this many ranks; remembered.
  bool rounds_once(const Algorithm& algorithm);

 private:
  bool may_serve(const Algorithm& algorithm, const Workload& workload) {
    return algorithm.collective == workload.collective &&
           (!workload.round_once || rounds_once(algorithm));
  }

  Platform platform_;
  using Key = std::tuple<Collective, DataType, int, Access, bool>;
  std::map<Key, const Algorithm*> chosen_;
  std::map<const Algorithm*, bool> rounds_once_;
};

}  // namespace tutti

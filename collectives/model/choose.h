// Which algorithm runs a call, where the user did not say: the one with the least predicted time.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/model/predict.h"
#include "collectives/model/rounding.h"

namespace tutti {

class Findings;

/// The fastest of a collective's algorithms by `predict(algorithm, best)`: how it would be done, or
/// something that is not possible; `best` is the best so far. A later algorithm of the table has to
/// be better by the factor `clearly`, or not worse by it and send less from host to host.
template <class Predict>
Prediction fastest(Collective collective, double clearly, Predict&& predict) {
  Prediction best;
  for (const Algorithm& a : algorithms()) {
    if (a.collective != collective) continue;
    Prediction p = predict(a, std::as_const(best));
    if (!p.possible) continue;
    const bool spares_network = p.ns * clearly < best.ns && p.across < best.across;
    if (!best.possible || p.ns < best.ns * clearly || spares_network) best = std::move(p);
  }
  return best;
}

/// The choices of one communicator, which is a live machine (of a cluster that is only described
/// see collectives/cluster/choose.h). They depend on nothing but the platform and the arguments, so
/// ranks with the same platform choose alike; those of one process share what they have chosen.
/// Thread-safe.
class Chooser {
 public:
  explicit Chooser(const Platform& platform);

  /// Remembered per power of two of the bytes, and predicted for that power. `findings`: of ranks
  /// in other processes with the same platform; null: there are none.
  const Algorithm& choose(const Workload& workload, Findings* findings = nullptr);
  /// Chooses ahead for short calls of the usual kind, as rank `rank` of those with these findings.
  /// `plain`: what they can address of memory that is in no window.
  void prepare(Findings& findings, int rank, Access plain);
  /// All that are possible, for exactly these bytes, the best first.
  std::vector<Prediction> candidates(const Workload& workload);
  /// Whether its plan can run on these hosts, as it addresses no memory of another. Remembered.
  bool may_run(const Algorithm& algorithm);
  /// rounds_once() of its plan for this many ranks; remembered.
  bool rounds_once(const Algorithm& algorithm);

 private:
  struct Memory;
  /// The choice; the caller holds the memory's lock.
  const Algorithm& choose(const Workload& workload, int size_class, Findings* findings);
  /// The best of these algorithms; none given: of all.
  const Algorithm& find(const Workload& workload, int size_class, Findings* findings,
                        std::initializer_list<const Algorithm*> among);
  bool may_run_there(const Algorithm& algorithm);
  bool rounds_once_there(const Algorithm& algorithm);
  /// Without access to others' memory there is no need to look at plans over windows.
  bool may_serve(const Algorithm& algorithm, const Workload& workload) {
    return algorithm.collective == workload.collective &&
           algorithm.compressed == workload.compressed && workload.access >= algorithm.needs() &&
           may_run_there(algorithm) && (!workload.invariant || algorithm.invariant) &&
           (!workload.round_once || rounds_once_there(algorithm));
  }

  std::shared_ptr<Memory> memory_;
};

}  // namespace tutti

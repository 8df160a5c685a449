// Finds the rank that makes a NaN. It looks at gradients where backward makes them, before ranks
// add them up, and tells all ranks of a job, whatever its axes. Reads all gradients once more.
//
//     CheckFinite check(trained_parameters(*model));     // before DataParallel or FullyShard
//     for (each step) {
//       ...                                              // forward; backward, to its end
//       check.refuse(world, "step 3");                   // throws on all ranks, or on none
//       optimizer.step();
//     }
#pragma once

#include <string>
#include <vector>

#include "../../parallel/axis.h"
#include "tensors.h"

namespace tutti::libtorch {

class CheckFinite {
 public:
  /// Adds hooks to the parameters. Make it before the engines: its hooks see this rank's own
  /// gradients then.
  explicit CheckFinite(std::vector<NamedTensor> parameters);
  ~CheckFinite();
  CheckFinite(const CheckFinite&) = delete;
  CheckFinite& operator=(const CheckFinite&) = delete;

  /// Another value that may not be finite ("the loss of micro-batch 2").
  void look_at(double value, const std::string& what);
  /// Collective: parallel::refuse_not_finite() with the first finding of each rank since the last
  /// call.
  void refuse(parallel::Axis& world, const std::string& where);

 private:
  const std::vector<NamedTensor> parameters_;
  std::vector<unsigned> hooks_;
  std::string found_;
};

}  // namespace tutti::libtorch

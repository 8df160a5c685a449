// Who makes a NaN: gradients are looked at where backward makes them, before ranks add them up, and
// all ranks of a job are told, whatever axes it has. Reads all gradients once more.
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
  /// Hooks of the parameters, which have to come before those of the engines: what they see is this
  /// rank's own.
  explicit CheckFinite(std::vector<NamedTensor> parameters);
  ~CheckFinite();
  CheckFinite(const CheckFinite&) = delete;
  CheckFinite& operator=(const CheckFinite&) = delete;

  /// Something else that may be wrong ("the loss of micro-batch 2").
  void look_at(double value, const std::string& what);
  /// Collective: as parallel::refuse_not_finite(), of what was found first on each rank since the
  /// last call.
  void refuse(parallel::Axis& world, const std::string& where);

 private:
  const std::vector<NamedTensor> parameters_;
  std::vector<unsigned> hooks_;
  std::string found_;
};

}  // namespace tutti::libtorch

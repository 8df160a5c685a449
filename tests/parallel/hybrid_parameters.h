// The parameters of hybrid_model.h as one rank has them, with either engine for the data axis.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/hybrid/shared_gradients.h"
#include "tests/parallel/hybrid_model.h"

namespace tutti::test {

/// A parameter, or this rank's part of it: what it starts with, and what it should be at the end.
struct HeldParameter {
  parallel::SharedParameter shared;
  double decay = 1;
  Matrix start, expected;
};
/// Those that are used together.
struct HeldUnit {
  std::string name;
  std::vector<HeldParameter> parameters;
};

class HybridParameters {
 public:
  virtual ~HybridParameters() = default;
  virtual void begin_step() {}
  /// A unit's forward, or backward; values and gradients are there in between.
  virtual void before(std::size_t unit, bool backward) = 0;
  /// `last`: of the step, for this unit.
  virtual void after(std::size_t unit, bool backward, bool last) = 0;
  virtual const double* value(std::size_t unit, std::size_t parameter) = 0;
  virtual double* gradient(std::size_t unit, std::size_t parameter) = 0;
  /// Of all ranks; the optimizer's step, unless the norm of the gradients is not finite. Returns
  /// it.
  virtual double end_step() = 0;
};

/// `norm_axes`: those other than `data`.
std::unique_ptr<HybridParameters> make_parameters(const HybridCase& c,
                                                  const std::vector<HeldUnit>& units,
                                                  parallel::Axis& data,
                                                  const parallel::SharedAxes& shared_axes,
                                                  std::vector<parallel::Axis*> norm_axes);

}  // namespace tutti::test

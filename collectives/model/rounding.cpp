#include "collectives/model/rounding.h"

#include "core/error.h"

namespace tutti {
namespace {

/// Whether this rank's part sums up all ranks' inputs in one step, wherever it sums. Where that
/// holds of all parts of a plan that is proved, each result is rounded once.
bool rounds_once(const RankPlan& plan) {
  // A step that completes a reduction from as many sources as there are ranks has one input in each
  // of them: every source contributes, and none twice.
  for (const auto& lane : plan.lanes) {
    for (const Step& step : lane) {
      const bool sums = step.sources > 1 && step.count > 0;
      if (sums && !(step.completes && step.sources == plan.header.ranks)) return false;
    }
  }
  return true;
}

}  // namespace

bool rounds_once(const Algorithm& algorithm, int ranks, const Domains& domains) {
  PlanRequest request;
  request.collective = algorithm.collective;
  request.ranks = ranks;
  try {
    for (int r = 0; r < ranks; ++r) {
      if (!rounds_once(generate(algorithm, request, r, domains))) return false;
    }
  } catch (const Error&) {
    return false;  // groups that do not divide the ranks, say
  }
  return true;
}

}  // namespace tutti

#include "collectives/model/choose.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "collectives/model/hosts.h"
#include "collectives/model/rounding.h"
#include "core/error.h"

namespace tutti {
namespace {

/// A later algorithm of the table has to be better by this much: those that come first are simpler,
/// and a prediction is not as exact as that.
constexpr double kClearlyBetter = 0.97;
/// What the kernel copies counts as so much longer: what that takes has varied by a factor of two
/// on one machine, while slots stayed within a third (docs/experiments.md#copies-by-the-kernel).
constexpr double kCopiesMayTake = 4.0 / 3;

/// The least power of two that holds `bytes`, as an exponent; -1 for none.
int class_of(std::size_t bytes) {
  if (bytes == 0) return -1;
  constexpr int kMost = std::numeric_limits<std::size_t>::digits - 2;  // no memory is larger
  return std::min(static_cast<int>(std::bit_width(bytes - 1)), kMost);
}

}  // namespace

const Algorithm& Chooser::choose(const Workload& workload) {
  const int size_class = class_of(workload.bytes);
  const DataType type =
      is_reduction(workload.collective) ? workload.type : DataType::uint8;  // else only bytes count
  const Algorithm*& chosen =
      chosen_[{workload.collective, type, size_class, workload.access, workload.round_once}];
  if (chosen != nullptr) return *chosen;
  Workload rounded = workload;
  if (workload.bytes > 0) rounded.bytes = std::size_t{1} << size_class;
  double best = 0;
  for (const Algorithm& a : algorithms()) {
    if (!may_serve(a, workload)) continue;
    const Prediction p = predict(a, rounded, platform_);
    if (!p.possible) continue;
    const bool copies = a.windows && workload.access == Access::copies;
    const double ns = copies ? p.ns * kCopiesMayTake : p.ns;
    if (chosen != nullptr && ns > best * kClearlyBetter) continue;
    chosen = &a;
    best = ns;
  }
  if (chosen == nullptr) {
    // Whatever there is: binding it says what is wrong with the links.
    const auto any = std::ranges::find_if(
        algorithms(), [&](const Algorithm& a) { return may_serve(a, workload); });
    if (any == algorithms().end()) {
      throw Error(ErrorCode::internal,
                  "no algorithm for " + std::string(name(workload.collective)));
    }
    chosen = &*any;
  }
  return *chosen;
}

bool Chooser::may_run(const Algorithm& algorithm) {
  if (!algorithm.windows || platform_.hosts.count() == 1) return true;
  const auto known = may_run_.find(&algorithm);
  if (known != may_run_.end()) return known->second;
  PlanRequest request;
  request.collective = algorithm.collective;
  request.ranks = platform_.ranks;
  bool may = false;
  try {
    may = !use_of(algorithm, request, layout_, platform_.hosts).across;
  } catch (const Error&) {  // groups that do not divide the ranks, say
  }
  may_run_.emplace(&algorithm, may);
  return may;
}

bool Chooser::rounds_once(const Algorithm& algorithm) {
  const auto known = rounds_once_.find(&algorithm);
  if (known != rounds_once_.end()) return known->second;
  const bool once = tutti::rounds_once(algorithm, platform_.ranks, layout_);
  rounds_once_.emplace(&algorithm, once);
  return once;
}

std::vector<Candidate> Chooser::candidates(const Workload& workload) {
  std::vector<Candidate> all;
  for (const Algorithm& a : algorithms()) {
    if (!may_serve(a, workload)) continue;
    const Prediction p = predict(a, workload, platform_);
    if (p.possible) all.push_back({&a, p});
  }
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.prediction.ns; });
  return all;
}

}  // namespace tutti

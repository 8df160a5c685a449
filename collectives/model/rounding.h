// How often a sum is rounded on its way. combine() widens 16- and 8-bit floats to float32, sums
// there, and rounds what it stores; so a partial sum that travels on is rounded before it grows,
// and how often that happens is a property of the plan. (float32 and float64 are summed as they
// are: every addition rounds, whichever way.)
#pragma once

#include "collectives/algorithms.h"
#include "collectives/model/domains.h"
#include "core/types.h"

namespace tutti {

/// Whether results of this kind have fewer digits when stored than when they are computed.
constexpr bool rounds_when_stored(ReduceKind kind, DataType type) {
  return is_float(type) && size_of(type) < 4 && kind != ReduceKind::min && kind != ReduceKind::max;
}

/// Whether another order of the inputs, or a partial sum that is stored, can change the bits.
constexpr bool order_matters(ReduceKind kind, DataType type) {
  return is_float(type) && kind != ReduceKind::min && kind != ReduceKind::max;
}

/// Whether each result of `algorithm` is rounded once: where all ranks' inputs are summed in one
/// step, wherever they are. False where it cannot serve so many. (Of a plan that is verified,
/// Verdict::roundings says how often.)
bool rounds_once(const Algorithm& algorithm, int ranks, const Domains& domains);

}  // namespace tutti

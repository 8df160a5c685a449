// One run of a plan on one rank over an axis (axis.h), on memory of the axis' device: a GPU's,
// above all.
#pragma once

#include "parallel/axis.h"
#include "parallel/memory_pool.h"
#include "parallel/reshard/pack.h"
#include "parallel/reshard/part.h"
#include "parallel/reshard/reshard.h"

namespace tutti::parallel::reshard {

/// What the runs of a Reshard over an axis share.
struct AxisContext {
  Axis& axis;
  const Layout& from;
  const Layout& to;
  const Plan& plan;
  int slots;
  MemoryPool& memory;
  ReshardTraffic& traffic;
};

/// Carries out `part`, which reads no memory of others. On return the host has waited for all of
/// it. Throws Error; then the axis has failed.
void run_over_axis(const AxisContext& context, const RankPart& part, const Memory& own);

}  // namespace tutti::parallel::reshard

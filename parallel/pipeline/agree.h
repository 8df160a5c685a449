// Before a pipeline runs: what it needs is there, and all ranks have the same.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/axis.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// The arguments are those of an Executor. Throws on all ranks if one has to, or if they differ: so
/// that none waits for another that has refused.
void agree(Axis& axis, const Schedule& schedule, const std::vector<std::size_t>& bytes,
           const Stages& stages);

}  // namespace tutti::parallel::pipeline

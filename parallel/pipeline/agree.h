// Checks before a pipeline runs: it has what it needs, and all ranks have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/axis.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// Collective. The arguments are those of an Executor; `lay_out` returns how many bytes it needs on
/// this rank, `allocate` gets them. If one rank throws, or if ranks differ, all throw. So no rank
/// waits for a rank that has refused.
void agree(Axis& axis, const Schedule& schedule, const std::vector<std::size_t>& bytes,
           const Stages& stages, const std::function<std::uint64_t()>& lay_out,
           const std::function<void()>& allocate);

}  // namespace tutti::parallel::pipeline

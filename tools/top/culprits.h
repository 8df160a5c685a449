// The ranks that hold a job's ranks up: the ends of the lines in which they wait.
#pragma once

#include <vector>

#include "tools/top/jobs.h"

namespace tutti::top {

/// Culprits that hold the most ranks up come first.
std::vector<Culprit> culprits_of(const Job& job);

}  // namespace tutti::top

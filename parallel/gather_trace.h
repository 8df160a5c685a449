// The traces of all ranks of a job in one file, wherever these run.
#pragma once

#include <iosfwd>

#include "axis.h"
#include "trace.h"

namespace tutti::parallel {

/// Collective over `ranks`: writes what all of them have traced, as write_json() does, to rank 0's
/// `out`; the others' is not used. Throws Error(system) on all of them where it could not be
/// written. (Ranks of several hosts have clocks of their own.)
void gather_json(std::ostream& out, Axis& ranks, const Trace& own);

}  // namespace tutti::parallel

// The traces of all ranks of a job in one file, on any hosts.
#pragma once

#include <iosfwd>

#include "axis.h"
#include "trace.h"

namespace tutti::parallel {

/// Collective over `ranks`: writes the traces of all of them to rank 0's `out`, as write_json()
/// does, and ignores the `out` of the others. Throws Error(system) on all of them if the write
/// fails. (Ranks of several hosts have clocks of their own.)
void gather_json(std::ostream& out, Axis& ranks, const Trace& own);

}  // namespace tutti::parallel

// hwloc's XML, formats 1.x, 2.x and 3.0. The reader parses it without libhwloc: Debian 12's (2.9)
// refuses format 3.0, and Tutti cannot promise what a hostile file does there.
#pragma once

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// Throws Error(invalid_argument) if there is no <topology> with a machine in it.
Records read_hwloc(const XmlSource& xml);

}  // namespace tutti::topology

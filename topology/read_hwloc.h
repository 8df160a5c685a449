// hwloc's XML, formats 1.x, 2.x and 3.0. It is read from the text and not through libhwloc: Debian
// 12's (2.9) refuses format 3.0, and what a hostile file may do there is not ours to promise.
#pragma once

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// Throws Error(invalid_argument) where there is no <topology> with a machine in it.
Records read_hwloc(const XmlSource& xml);

}  // namespace tutti::topology

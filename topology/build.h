// From records to the graph.
#pragma once

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

/// `records` as they are, after check() or trusted: whatever they say, the graph is a valid one.
Graph build(const Records& records);

}  // namespace tutti::topology

// From records to the graph.
#pragma once

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

/// Makes a graph of `records`, after check() or trusted. The graph is valid whatever they say.
Graph build(const Records& records);

}  // namespace tutti::topology

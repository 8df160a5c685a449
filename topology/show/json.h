// A topology for programs: all nodes and links, what the source lists, what is not believed.
#pragma once

#include <string>

#include "topology/graph.h"
#include "topology/show/inventory.h"

namespace tutti::topology {

/// `inventory`: of the records before they were repaired.
std::string to_json(const Graph& graph, const Inventory& inventory);

}  // namespace tutti::topology

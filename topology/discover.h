// Topology from wherever it is: this machine, or a file or folder of one of the formats that
// docs/topology.md lists.
#pragma once

#include <string>

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

/// What this machine shows: Linux's files, and NVIDIA's driver where there is one.
Records discover_records();
/// What `path` says, whatever of the formats it is. Throws Error(invalid_argument) that names the
/// file, the line and what was expected.
Records read_records(const std::string& path);
/// The same for text that is at hand; `name` stands for the file in messages.
Records records_of(const std::string& text, const std::string& name);

/// Doubts and repairs what the records say (unless the setting TUTTI_TOPO_TRUST says that they are
/// right), and makes the graph. `records` is what it was made from afterwards.
Graph graph_of(Records& records);

/// This machine, looked at once in a process; doubts are logged then.
const Graph& this_machine();

}  // namespace tutti::topology

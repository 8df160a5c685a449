// Topology from any source: this machine, or a file or folder in a format of docs/topology.md.
#pragma once

#include <string>

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

/// The records of this machine: Linux's files, and NVIDIA's driver where there is one.
Records discover_records();
/// The records of `path`, in any of the formats. Throws Error(invalid_argument), which names the
/// file, the line and the expected content.
Records read_records(const std::string& path);
/// The same for a text in memory; `name` stands for the file in messages.
Records records_of(const std::string& text, const std::string& name);

/// Makes a graph of `records`, after check() or trusted. The graph is valid whatever they say.
Graph build(const Records& records);
/// Checks and repairs the records (unless the setting TUTTI_TOPO_TRUST is on), and makes the graph.
/// Afterwards `records` is the repaired form.
Graph graph_of(Records& records);

/// This machine. A process reads it once, and logs the doubts then.
const Graph& this_machine();

}  // namespace tutti::topology

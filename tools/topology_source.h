// The topology of a command: this machine's, or a file's.
#pragma once

#include <string>

#include "topology/discover.h"

namespace tutti {

/// This machine for "", stdin for "-".
topology::Records topology_records(const std::string& file);
/// Of a machine from a description: "8xH100" (topology/describe.h).
topology::Records described_records(const std::string& text);
/// A file's, or this machine's. A description, if there is one, fills gaps of its GPUs; `filled`
/// names them (topology/fill.h).
topology::Records filled_records(const std::string& file, const std::string& description,
                                 std::string& filled);
/// Prints a line on standard error about GPUs that are sold with links and have none here; `hint`
/// says what to do.
void warn_of_unlinked(const topology::Graph& graph, const std::string& hint);
/// The graph. Names doubts on standard error.
topology::Graph topology_graph(topology::Records& records);

}  // namespace tutti

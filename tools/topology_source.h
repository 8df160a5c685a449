// Which topology a command is about: this machine's, or a file's.
#pragma once

#include <string>

#include "topology/discover.h"

namespace tutti {

/// This machine for "", stdin for "-".
topology::Records topology_records(const std::string& file);
/// Of a machine that is only described: "8xH100" (topology/describe.h).
topology::Records described_records(const std::string& text);
/// A file's, or this machine's, with what it leaves out of its GPUs taken from a description, if
/// there is one; `filled` says what that was (topology/fill.h).
topology::Records filled_records(const std::string& file, const std::string& description,
                                 std::string& filled);
/// Of GPUs that have links where they are sold, and here none, a line on standard error; `hint`
/// says what to do.
void warn_of_unlinked(const topology::Graph& graph, const std::string& hint);
/// The graph; what is not believed is named on standard error.
topology::Graph topology_graph(topology::Records& records);

}  // namespace tutti

// Which topology a command is about: this machine's, or a file's.
#pragma once

#include <string>

#include "topology/discover.h"

namespace tutti {

/// This machine for "", stdin for "-".
topology::Records topology_records(const std::string& file);
/// Of a machine that is only described: "8xH100" (topology/describe.h).
topology::Records described_records(const std::string& text);
/// The graph; what is not believed is named on standard error.
topology::Graph topology_graph(topology::Records& records);

}  // namespace tutti

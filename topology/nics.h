// The port that a GPU uses for other hosts: the nearest fast one; of equals, the least used.
#pragma once

#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

struct NicChoice {
  int gpu = -1, port = -1;  // nodes; port -1: there is none
  Path path;                // from the GPU to the port
  int sharing = 0;          // GPUs that use this port, this one among them
  /// All usable ports of its host, the best one first.
  struct Candidate {
    int port = -1;
    Path path;
  };
  std::vector<Candidate> candidates;
};

/// The ports for data: connected ports of real devices, if there are any, with at least half the
/// speed of the fastest one. So no management port and no virtual interface.
std::vector<int> data_ports(const Graph& graph, int host);

/// By GPU, in the order of Graph::gpus().
std::vector<NicChoice> nics_of_gpus(const Graph& graph);

}  // namespace tutti::topology

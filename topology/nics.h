// Which port each GPU uses for other hosts: the nearest that is fast, and of equals the one that
// fewest others use.
#pragma once

#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

struct NicChoice {
  int gpu = -1, port = -1;  // nodes; port -1: there is none
  Path path;                // from the GPU to the port
  int sharing = 0;          // GPUs that use this port, this one among them
  /// All ports of its host that can be used, the best one first.
  struct Candidate {
    int port = -1;
    Path path;
  };
  std::vector<Candidate> candidates;
};

/// Ports that data should go through: connected ones of real devices, if there are any, that have
/// at least half the speed of the fastest one. A management port or a virtual interface is none.
std::vector<int> data_ports(const Graph& graph, int host);

/// By GPU, in the order of Graph::gpus().
std::vector<NicChoice> nics_of_gpus(const Graph& graph);

}  // namespace tutti::topology

// NCCL's and RCCL's system XML (versions 1 and 2; NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) and NCCL's
// graph XML (NCCL_GRAPH_DUMP_FILE). The readers are more generous than NCCL: they take any number
// of elements in any order, and ignore unknown elements and attributes.
#pragma once

#include <string>
#include <vector>

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// Throws Error(invalid_argument) if there is no <system> with content.
Records read_nccl_system(const XmlSource& xml);

/// One <graph>: the channels that NCCL found, or was told to use, for one kind of algorithm.
struct NcclGraph {
  int id = 0;              // 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct
  int pattern = 0;         // 4 is a ring, 1 to 3 are trees, 5 is NVLS
  double speed_intra = 0;  // GB/s of a channel
  struct Channel {
    std::vector<int> gpus;  // by dev, without the host's number in the upper byte of NCCL's
    std::vector<int> nets;
  };
  std::vector<Channel> channels;
};
struct NcclGraphs {
  std::vector<NcclGraph> graphs;
  std::vector<Doubt> doubts;
};
/// Throws Error(invalid_argument) if there is no <graphs>.
NcclGraphs read_nccl_graphs(const XmlSource& xml);

}  // namespace tutti::topology

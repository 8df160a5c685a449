// Collectives of neighborhoods: each rank exchanges with those that the communicator's topology
// makes its neighbors.
#pragma once

#include <utility>

#include "bindings/mpi/movement.h"
#include "bindings/mpi/topology.h"

namespace tutti::mpi {

/// Each neighbor gets the same block.
struct NeighborAllgather {
  Block in, out;
  Work operator()(Comm& comm) const;
};
struct NeighborAllgatherv {
  Block in;
  Blocks out;
  Work operator()(Comm& comm) const;
};
/// Each neighbor gets another block.
struct NeighborAlltoall {
  Block in, out;
  Work operator()(Comm& comm) const;
};
struct NeighborAlltoallv {
  Blocks in, out;
  Work operator()(Comm& comm) const;
};
struct NeighborAlltoallw {
  TypedBlocks in, out;
  Work operator()(Comm& comm) const;
};

/// collective_forms.h asks how many blocks there are.
inline std::pair<int, int> blocks_of_neighbors(const Comm& comm) {
  const Neighborhood edges = neighborhood_of(comm);
  return {static_cast<int>(edges.destinations.size()), static_cast<int>(edges.sources.size())};
}
inline std::pair<int, int> blocks_of(const NeighborAllgatherv&, const Comm& comm) {
  return blocks_of_neighbors(comm);
}
inline std::pair<int, int> blocks_of(const NeighborAlltoallv&, const Comm& comm) {
  return blocks_of_neighbors(comm);
}
inline std::pair<int, int> blocks_of(const NeighborAlltoallw&, const Comm& comm) {
  return blocks_of_neighbors(comm);
}

}  // namespace tutti::mpi

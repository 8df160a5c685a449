// Virtual topologies: who is whose neighbor in a communicator. All of it is computed here, without
// communication.
#pragma once

#include <memory>
#include <vector>

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

struct Comm;

/// A grid. Ranks count the last dimension fastest.
struct Grid {
  std::vector<int> sizes;
  std::vector<bool> periodic;

  std::size_t dimensions() const { return sizes.size(); }
  /// Processes; throws Failure(MPI_ERR_DIMS) for a size below 1, or if they are more than an int
  /// counts.
  int processes() const;
  std::vector<int> place_of(int rank) const;
  /// Coordinates outside of a periodic dimension wrap; MPI_PROC_NULL if one is outside of another
  /// dimension.
  int rank_of(std::vector<int> place) const;
  /// The rank that is `steps` away in a dimension.
  int shifted(int rank, std::size_t dimension, int steps) const;
};

/// A graph that all ranks know: the neighbors of rank r are edges[ends[r - 1]] to edges[ends[r] -
/// 1].
struct Graph {
  std::vector<int> ends;
  std::vector<int> edges;

  std::vector<int> neighbors(int rank) const;
};

/// The part of a graph that one rank knows: its own edges, with weights if there are any.
struct Adjacency {
  std::vector<int> sources, source_weights;
  std::vector<int> destinations, destination_weights;
  bool weighted = false;
};

struct Topology {
  int kind = MPI_UNDEFINED;  // MPI_CART, MPI_GRAPH, MPI_DIST_GRAPH: which of these it has
  Grid grid;
  Graph graph;
  Adjacency adjacency;
};
using TopologyRef = std::shared_ptr<const Topology>;

/// The communicator's; null if it has none. topology_of_kind() throws Failure(MPI_ERR_TOPOLOGY) if
/// it has no such one.
const Topology* topology_of(const Comm& comm);
const Topology& topology_of_kind(const Comm& comm, int kind);

/// An end of an edge in a neighborhood collective. Several edges may join the same two ranks: a
/// message goes to the edge of the receiver with the same label, and edges with equal labels keep
/// their order.
struct Edge {
  int rank;   // or MPI_PROC_NULL
  int label;  // on a grid: the direction in which the message goes
};
struct Neighborhood {
  std::vector<Edge> sources, destinations;
};
/// In the order of the standard: on a grid, for each dimension first the lower neighbor, then the
/// upper one. Throws Failure(MPI_ERR_TOPOLOGY) for a communicator without topology.
Neighborhood neighborhood_of(const Comm& comm);

/// Fills the sizes that are 0 so that their product is `processes`, differing as little as they
/// can, the largest first. Throws Failure(MPI_ERR_DIMS) if there are none.
void balance(int processes, int dimensions, int* sizes);

}  // namespace tutti::mpi

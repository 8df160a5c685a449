// The procedures of topologies.
#include <algorithm>
#include <climits>
#include <numeric>

#include "bindings/mpi/communicator.h"
#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/topology.h"

namespace tutti::mpi {
namespace {

/// A communicator of the first `processes` ranks with the topology; MPI_COMM_NULL for the others.
MPI_Comm with_topology(Comm& parent, int processes, const TopologyRef& topology) {
  if (processes > parent.size()) {
    fail(MPI_ERR_ARG, "the topology has {} processes, and the communicator {}", processes,
         parent.size());
  }
  CommRef comm = split(parent, parent.rank < processes ? 0 : MPI_UNDEFINED, parent.rank);
  if (comm == nullptr) return MPI_COMM_NULL;
  comm->topology = std::const_pointer_cast<Topology>(topology);
  return publish(std::move(comm));
}

template <class Entry>
std::vector<Entry> list_of(int n, const int* entries) {
  if (n < 0) fail(MPI_ERR_ARG, "a list of {} entries", n);
  if (n > 0 && entries == nullptr) fail(MPI_ERR_ARG, "a list of {} entries is a null pointer", n);
  std::vector<Entry> list;
  for (int i = 0; i < n; ++i) list.push_back(static_cast<Entry>(entries[i]));
  return list;
}

Grid grid_of(int dimensions, const int* sizes, const int* periods) {
  if (dimensions < 0) fail(MPI_ERR_DIMS, "a grid of {} dimensions", dimensions);
  return {list_of<int>(dimensions, sizes), list_of<bool>(dimensions, periods)};
}

const Grid& grid_of(MPI_Comm comm) { return topology_of_kind(intra_comm_of(comm), MPI_CART).grid; }
const Graph& graph_of(MPI_Comm comm) {
  return topology_of_kind(intra_comm_of(comm), MPI_GRAPH).graph;
}
const Adjacency& adjacency_of(MPI_Comm comm) {
  return topology_of_kind(intra_comm_of(comm), MPI_DIST_GRAPH).adjacency;
}

void check_room(int room, std::size_t needed, const char* what) {
  if (room < 0 || static_cast<std::size_t>(room) < needed) {
    fail(MPI_ERR_ARG, "there is room for {} {}, and there are {}", room, what, needed);
  }
}

void check_rank(const Comm& comm, int rank) {
  if (rank < 0 || rank >= comm.size()) {
    fail(MPI_ERR_RANK, "rank {} of a communicator of {}", rank, comm.size());
  }
}

}  // namespace

int MPI_Topo_test(MPI_Comm comm, int* status) {
  return guarded("MPI_Topo_test", comm, [&] {
    const Topology* topology = topology_of(comm_of(comm));
    *status = topology == nullptr ? MPI_UNDEFINED : topology->kind;
  });
}

int MPI_Dims_create(int processes, int dimensions, int sizes[]) {
  return guarded("MPI_Dims_create", On(), [&] { balance(processes, dimensions, sizes); });
}

// --- Grids

int MPI_Cart_create(MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int,
                    MPI_Comm* grid) {
  return guarded("MPI_Cart_create", comm, [&] {
    Comm& parent = intra_comm_of(comm);
    auto topology = std::make_shared<Topology>();
    topology->kind = MPI_CART;
    topology->grid = grid_of(dimensions, sizes, periods);
    *grid = with_topology(parent, topology->grid.processes(), topology);
  });
}

int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm* newcomm) {
  return guarded("MPI_Cart_sub", comm, [&] {
    Comm& parent = intra_comm_of(comm);
    const Grid& grid = grid_of(comm);
    const std::vector<int> place = grid.place_of(parent.rank);
    auto topology = std::make_shared<Topology>();
    topology->kind = MPI_CART;
    int color = 0, key = 0;  // the place in the dimensions that go, and in those that remain
    for (std::size_t d = 0; d < grid.dimensions(); ++d) {
      int& number = remain[d] != 0 ? key : color;
      number = number * grid.sizes[d] + place[d];
      if (remain[d] == 0) continue;
      topology->grid.sizes.push_back(grid.sizes[d]);
      topology->grid.periodic.push_back(grid.periodic[d]);
    }
    CommRef part = split(parent, color, key);
    part->topology = topology;
    *newcomm = publish(std::move(part));
  });
}

int MPI_Cart_map(MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int* rank) {
  return guarded("MPI_Cart_map", comm, [&] {
    const Comm& of = intra_comm_of(comm);
    const int processes = grid_of(dimensions, sizes, periods).processes();
    if (processes > of.size()) {
      fail(MPI_ERR_DIMS, "the grid has {} processes, and the communicator {}", processes,
           of.size());
    }
    *rank = of.rank < processes ? of.rank : MPI_UNDEFINED;
  });
}

int MPI_Cartdim_get(MPI_Comm comm, int* dimensions) {
  return guarded("MPI_Cartdim_get", comm,
                 [&] { *dimensions = static_cast<int>(grid_of(comm).dimensions()); });
}

int MPI_Cart_get(MPI_Comm comm, int room, int sizes[], int periods[], int place[]) {
  return guarded("MPI_Cart_get", comm, [&] {
    const Grid& grid = grid_of(comm);
    check_room(room, grid.dimensions(), "dimensions");
    const std::vector<int> own = grid.place_of(comm_of(comm).rank);
    for (std::size_t d = 0; d < grid.dimensions(); ++d) {
      sizes[d] = grid.sizes[d];
      periods[d] = grid.periodic[d] ? 1 : 0;
      place[d] = own[d];
    }
  });
}

int MPI_Cart_rank(MPI_Comm comm, const int place[], int* rank) {
  return guarded("MPI_Cart_rank", comm, [&] {
    const Grid& grid = grid_of(comm);
    *rank = grid.rank_of(list_of<int>(static_cast<int>(grid.dimensions()), place));
    if (*rank == MPI_PROC_NULL) {
      fail(MPI_ERR_ARG, "a coordinate is outside of a dimension that is not periodic");
    }
  });
}

int MPI_Cart_coords(MPI_Comm comm, int rank, int room, int place[]) {
  return guarded("MPI_Cart_coords", comm, [&] {
    const Grid& grid = grid_of(comm);
    check_rank(comm_of(comm), rank);
    check_room(room, grid.dimensions(), "dimensions");
    const std::vector<int> at = grid.place_of(rank);
    std::copy(at.begin(), at.end(), place);
  });
}

int MPI_Cart_shift(MPI_Comm comm, int direction, int steps, int* source, int* destination) {
  return guarded("MPI_Cart_shift", comm, [&] {
    const Grid& grid = grid_of(comm);
    if (direction < 0 || static_cast<std::size_t>(direction) >= grid.dimensions()) {
      fail(MPI_ERR_ARG, "dimension {} of a grid of {}", direction, grid.dimensions());
    }
    const auto d = static_cast<std::size_t>(direction);
    const int rank = comm_of(comm).rank;
    // A shift by the lowest integer has no opposite.
    const int back = steps == INT_MIN ? -(steps % grid.sizes[d]) : -steps;
    *source = steps == INT_MIN && !grid.periodic[d] ? MPI_PROC_NULL : grid.shifted(rank, d, back);
    *destination = grid.shifted(rank, d, steps);
  });
}

// --- Graphs that all ranks know

namespace {

Graph checked_graph(int nodes, const int* ends, const int* edges) {
  if (nodes < 0) fail(MPI_ERR_ARG, "a graph of {} nodes", nodes);
  Graph graph{list_of<int>(nodes, ends), {}};
  int before = 0;
  for (const int end : graph.ends) {
    if (end < before)
      fail(MPI_ERR_ARG, "the index of a graph goes down from {} to {}", before, end);
    before = end;
  }
  graph.edges = list_of<int>(before, edges);
  for (const int neighbor : graph.edges) {
    if (neighbor < 0 || neighbor >= nodes)
      fail(MPI_ERR_ARG, "an edge to node {} of {}", neighbor, nodes);
  }
  return graph;
}

}  // namespace

int MPI_Graph_create(MPI_Comm comm, int nodes, const int ends[], const int edges[], int,
                     MPI_Comm* graph) {
  return guarded("MPI_Graph_create", comm, [&] {
    Comm& parent = intra_comm_of(comm);
    auto topology = std::make_shared<Topology>();
    topology->kind = MPI_GRAPH;
    topology->graph = checked_graph(nodes, ends, edges);
    *graph = with_topology(parent, nodes, topology);
  });
}

int MPI_Graph_map(MPI_Comm comm, int nodes, const int ends[], const int edges[], int* rank) {
  return guarded("MPI_Graph_map", comm, [&] {
    const Comm& of = intra_comm_of(comm);
    checked_graph(nodes, ends, edges);
    if (nodes > of.size())
      fail(MPI_ERR_ARG, "the graph has {} nodes, and the communicator {} ranks", nodes, of.size());
    *rank = of.rank < nodes ? of.rank : MPI_UNDEFINED;
  });
}

int MPI_Graphdims_get(MPI_Comm comm, int* nodes, int* edges) {
  return guarded("MPI_Graphdims_get", comm, [&] {
    const Graph& graph = graph_of(comm);
    *nodes = static_cast<int>(graph.ends.size());
    *edges = static_cast<int>(graph.edges.size());
  });
}

int MPI_Graph_get(MPI_Comm comm, int nodes, int edges, int end[], int edge[]) {
  return guarded("MPI_Graph_get", comm, [&] {
    const Graph& graph = graph_of(comm);
    check_room(nodes, graph.ends.size(), "nodes");
    check_room(edges, graph.edges.size(), "edges");
    std::copy(graph.ends.begin(), graph.ends.end(), end);
    std::copy(graph.edges.begin(), graph.edges.end(), edge);
  });
}

int MPI_Graph_neighbors_count(MPI_Comm comm, int rank, int* count) {
  return guarded("MPI_Graph_neighbors_count", comm, [&] {
    const Graph& graph = graph_of(comm);
    check_rank(comm_of(comm), rank);
    *count = static_cast<int>(graph.neighbors(rank).size());
  });
}

int MPI_Graph_neighbors(MPI_Comm comm, int rank, int room, int neighbors[]) {
  return guarded("MPI_Graph_neighbors", comm, [&] {
    const Graph& graph = graph_of(comm);
    check_rank(comm_of(comm), rank);
    const std::vector<int> list = graph.neighbors(rank);
    check_room(room, list.size(), "neighbors");
    std::copy(list.begin(), list.end(), neighbors);
  });
}

// --- Graphs of which a rank knows its own edges

namespace {

bool has_weights(const int* weights) { return weights != MPI_UNWEIGHTED; }

/// The weights of n edges; MPI_WEIGHTS_EMPTY stands for a list without entries.
std::vector<int> weights_of(int n, const int* weights) {
  if (weights == MPI_UNWEIGHTED)
    return std::vector<int>(static_cast<std::size_t>(std::max(n, 0)), 1);
  return n == 0 ? std::vector<int>() : list_of<int>(n, weights);
}

void check_ranks(const Comm& comm, const std::vector<int>& ranks) {
  for (const int rank : ranks) check_rank(comm, rank);
}

MPI_Comm with_adjacency(Comm& parent, Adjacency adjacency) {
  auto topology = std::make_shared<Topology>();
  topology->kind = MPI_DIST_GRAPH;
  topology->adjacency = std::move(adjacency);
  return with_topology(parent, parent.size(), topology);
}

/// The edges that the caller adds to the graph.
std::vector<int> own_edges(const Comm& comm, int n, const int* sources, const int* degrees,
                           const int* destinations, const int* weights) {
  const std::vector<int> from = list_of<int>(n, sources);
  const std::vector<int> counts = list_of<int>(n, degrees);
  check_ranks(comm, from);
  std::vector<int> numbers;  // three an edge
  int next = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (counts[i] < 0) fail(MPI_ERR_ARG, "the degree of rank {} is {}", from[i], counts[i]);
    for (int k = 0; k < counts[i]; ++k, ++next) {
      check_rank(comm, destinations[next]);
      numbers.insert(numbers.end(),
                     {from[i], destinations[next], has_weights(weights) ? weights[next] : 1});
    }
  }
  return numbers;
}

/// A call of another procedure, whose handler has been told of an error already.
void check(int code) {
  if (code != MPI_SUCCESS) throw Failure(code, "");
}

/// All ranks' lists, in the order of ranks.
std::vector<int> gathered(MPI_Comm comm, int ranks, const std::vector<int>& own) {
  std::vector<int> counts(static_cast<std::size_t>(ranks)), places(counts.size());
  const int count = static_cast<int>(own.size());
  check(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, comm));
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  std::vector<int> all(static_cast<std::size_t>(places.back()) +
                       static_cast<std::size_t>(counts.back()));
  check(MPI_Allgatherv(own.data(), count, MPI_INT, all.data(), counts.data(), places.data(),
                       MPI_INT, comm));
  return all;
}

}  // namespace

int MPI_Dist_graph_create_adjacent(MPI_Comm comm, int indegree, const int sources[],
                                   const int* source_weights, int outdegree,
                                   const int destinations[], const int* destination_weights,
                                   MPI_Info, int, MPI_Comm* graph) {
  return guarded("MPI_Dist_graph_create_adjacent", comm, [&] {
    Comm& parent = intra_comm_of(comm);
    Adjacency adjacency;
    adjacency.weighted = has_weights(source_weights) || has_weights(destination_weights);
    adjacency.sources = list_of<int>(indegree, sources);
    adjacency.source_weights = weights_of(indegree, source_weights);
    adjacency.destinations = list_of<int>(outdegree, destinations);
    adjacency.destination_weights = weights_of(outdegree, destination_weights);
    check_ranks(parent, adjacency.sources);
    check_ranks(parent, adjacency.destinations);
    *graph = with_adjacency(parent, std::move(adjacency));
  });
}

int MPI_Dist_graph_create(MPI_Comm comm, int n, const int sources[], const int degrees[],
                          const int destinations[], const int* weights, MPI_Info, int,
                          MPI_Comm* graph) {
  return guarded("MPI_Dist_graph_create", comm, [&] {
    Comm& parent = intra_comm_of(comm);
    const std::vector<int> own = own_edges(parent, n, sources, degrees, destinations, weights);
    const std::vector<int> all = gathered(comm, parent.size(), own);
    Adjacency adjacency;
    adjacency.weighted = has_weights(weights);
    for (std::size_t i = 0; i < all.size(); i += 3) {
      if (all[i] == parent.rank) {
        adjacency.destinations.push_back(all[i + 1]);
        adjacency.destination_weights.push_back(all[i + 2]);
      }
      if (all[i + 1] == parent.rank) {
        adjacency.sources.push_back(all[i]);
        adjacency.source_weights.push_back(all[i + 2]);
      }
    }
    *graph = with_adjacency(parent, std::move(adjacency));
  });
}

int MPI_Dist_graph_neighbors_count(MPI_Comm comm, int* indegree, int* outdegree, int* weighted) {
  return guarded("MPI_Dist_graph_neighbors_count", comm, [&] {
    const Adjacency& adjacency = adjacency_of(comm);
    *indegree = static_cast<int>(adjacency.sources.size());
    *outdegree = static_cast<int>(adjacency.destinations.size());
    *weighted = adjacency.weighted ? 1 : 0;
  });
}

int MPI_Dist_graph_neighbors(MPI_Comm comm, int max_in, int sources[], int* source_weights,
                             int max_out, int destinations[], int* destination_weights) {
  return guarded("MPI_Dist_graph_neighbors", comm, [&] {
    const Adjacency& adjacency = adjacency_of(comm);
    const auto give = [&](const std::vector<int>& from, int room, int* to) {
      std::copy_n(from.begin(), std::min(from.size(), static_cast<std::size_t>(std::max(room, 0))),
                  to);
    };
    give(adjacency.sources, max_in, sources);
    give(adjacency.destinations, max_out, destinations);
    if (!adjacency.weighted) return;
    if (has_weights(source_weights)) give(adjacency.source_weights, max_in, source_weights);
    if (has_weights(destination_weights))
      give(adjacency.destination_weights, max_out, destination_weights);
  });
}

}  // namespace tutti::mpi

#include "bindings/mpi/topology.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "bindings/mpi/communicator.h"
#include "bindings/mpi/error.h"

namespace tutti::mpi {

int Grid::processes() const {
  long long product = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 1)
      fail(MPI_ERR_DIMS, "dimension {} has {} processes; it has to have at least one", d, sizes[d]);
    product *= sizes[d];
    if (product > INT_MAX) fail(MPI_ERR_DIMS, "the grid has more than 2^31 - 1 processes");
  }
  return static_cast<int>(product);
}

std::vector<int> Grid::place_of(int rank) const {
  std::vector<int> place(dimensions());
  for (std::size_t d = dimensions(); d-- > 0;) {
    place[d] = rank % sizes[d];
    rank /= sizes[d];
  }
  return place;
}

int Grid::rank_of(std::vector<int> place) const {
  int rank = 0;
  for (std::size_t d = 0; d < dimensions(); ++d) {
    int at = place[d];
    if (periodic[d]) {
      at %= sizes[d];
      if (at < 0) at += sizes[d];
    }
    if (at < 0 || at >= sizes[d]) return MPI_PROC_NULL;
    rank = rank * sizes[d] + at;
  }
  return rank;
}

int Grid::shifted(int rank, std::size_t dimension, int steps) const {
  std::vector<int> place = place_of(rank);
  const long long at = static_cast<long long>(place[dimension]) + steps;
  if (!periodic[dimension] && (at < 0 || at >= sizes[dimension])) return MPI_PROC_NULL;
  place[dimension] = static_cast<int>(at % sizes[dimension]);
  return rank_of(std::move(place));
}

std::vector<int> Graph::neighbors(int rank) const {
  const int first = rank == 0 ? 0 : ends[static_cast<std::size_t>(rank) - 1];
  return {edges.begin() + first, edges.begin() + ends[static_cast<std::size_t>(rank)]};
}

const Topology* topology_of(const Comm& comm) {
  return static_cast<const Topology*>(comm.topology.get());
}

const Topology& topology_of_kind(const Comm& comm, int kind) {
  const Topology* topology = topology_of(comm);
  if (topology == nullptr || topology->kind != kind) {
    const char* name = kind == MPI_CART    ? "Cartesian"
                       : kind == MPI_GRAPH ? "graph"
                                           : "distributed graph";
    fail(MPI_ERR_TOPOLOGY, "the communicator has no {} topology", name);
  }
  return *topology;
}

namespace {

/// What goes down a dimension comes from the upper neighbor of its receiver, and the other way
/// round: so the two edges of a dimension are told apart even where both neighbors are one rank, or
/// the rank itself.
Neighborhood on_grid(const Grid& grid, int rank) {
  Neighborhood all;
  for (std::size_t d = 0; d < grid.dimensions(); ++d) {
    const int down = static_cast<int>(2 * d), up = down + 1;
    const int lower = grid.shifted(rank, d, -1), upper = grid.shifted(rank, d, 1);
    all.destinations.push_back({lower, down});
    all.destinations.push_back({upper, up});
    all.sources.push_back({lower, up});
    all.sources.push_back({upper, down});
  }
  return all;
}

std::vector<Edge> unlabeled(const std::vector<int>& ranks) {
  std::vector<Edge> edges;
  for (const int rank : ranks) edges.push_back({rank, 0});
  return edges;
}

}  // namespace

Neighborhood neighborhood_of(const Comm& comm) {
  const Topology* topology = topology_of(comm);
  if (topology == nullptr) fail(MPI_ERR_TOPOLOGY, "the communicator has no topology");
  switch (topology->kind) {
    case MPI_CART:
      return on_grid(topology->grid, comm.rank);
    case MPI_GRAPH: {
      const auto edges = unlabeled(topology->graph.neighbors(comm.rank));
      return {edges, edges};
    }
    default:
      return {unlabeled(topology->adjacency.sources), unlabeled(topology->adjacency.destinations)};
  }
}

// --- Balanced grids

namespace {

std::vector<int> divisors(int n) {
  std::vector<int> list;
  for (int d = 1; static_cast<long long>(d) * d <= n; ++d) {
    if (n % d != 0) continue;
    list.push_back(d);
    if (d != n / d) list.push_back(n / d);
  }
  std::sort(list.begin(), list.end());
  return list;
}

/// The search for factors of a number that differ as little as they can.
struct Factors {
  std::vector<int> now, best;
  int spread = INT_MAX;  // of the best: the largest less the smallest

  /// Continues `now`, whose first factor is the largest, by `count` factors of n up to `most`.
  void search(int n, std::size_t count, int most) {
    if (count == 0) {
      if (n == 1) keep();
      return;
    }
    for (const int factor : divisors(n)) {
      if (factor > most) return;
      const int largest = now.empty() ? factor : now.front();
      if (!reaches(factor, count, n) || (!best.empty() && largest - factor > spread)) continue;
      if (now.empty() && !best.empty() && least_spread(factor, count, n) > spread) return;
      now.push_back(factor);
      search(n / factor, count - 1, factor);
      now.pop_back();
    }
  }

 private:
  void keep() {
    const int found = now.front() - now.back();
    if (!best.empty() && (found > spread || (found == spread && now.back() <= best.back()))) return;
    spread = found;
    best = now;
  }
  /// Whether `count` factors up to `factor` can make n.
  static bool reaches(int factor, std::size_t count, int n) {
    long long product = 1;
    for (std::size_t i = 0; i < count && product < n; ++i) product *= factor;
    return product >= n;
  }
  /// The smallest of `count` factors is at most the root of n.
  static int least_spread(int largest, std::size_t count, int n) {
    return largest - static_cast<int>(std::pow(n, 1.0 / static_cast<double>(count)) + 1);
  }
};

}  // namespace

void balance(int processes, int dimensions, int* sizes) {
  if (processes < 1) fail(MPI_ERR_DIMS, "a grid of {} processes", processes);
  if (dimensions < 0) fail(MPI_ERR_DIMS, "a grid of {} dimensions", dimensions);
  int rest = processes;
  std::size_t open = 0;
  for (int d = 0; d < dimensions; ++d) {
    if (sizes[d] < 0) fail(MPI_ERR_DIMS, "dimension {} has {} processes", d, sizes[d]);
    if (sizes[d] == 0) {
      ++open;
    } else if (rest % sizes[d] != 0) {
      fail(MPI_ERR_DIMS, "{} processes cannot be divided by the sizes that are given", processes);
    } else {
      rest /= sizes[d];
    }
  }
  if (open == 0 && rest != 1) {
    fail(MPI_ERR_DIMS, "the sizes that are given do not make {} processes", processes);
  }
  Factors factors;
  if (open > 0) factors.search(rest, open, rest);
  std::size_t next = 0;
  for (int d = 0; d < dimensions; ++d) {
    if (sizes[d] == 0) sizes[d] = factors.best[next++];
  }
}

}  // namespace tutti::mpi

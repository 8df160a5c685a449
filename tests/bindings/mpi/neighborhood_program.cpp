// Collectives of neighborhoods in all their forms: on grids with periodic axes of one, two and more
// ranks, where what goes down an axis has to come from above, and on graphs with several edges
// between two ranks. Run on any number of ranks; prints "all right" on rank 0.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bindings/mpi/mpi.h"

namespace {

int failures = 0;

/// What one rank exchanges: its edges, and for each source the slot that the sender uses for it.
struct Case {
  std::string name;
  MPI_Comm comm;
  int rank;
  std::vector<int> sources, destinations;
  std::vector<int> sender_slots;
};

constexpr int kLength = 3;  // ints of a block

int value(int rank, int slot, int i) { return rank * 10000 + slot * 100 + i; }

void expect(bool right, const Case& c, const char* form) {
  if (right) return;
  std::fprintf(stderr, "rank %d: %s on %s is wrong\n", c.rank, form, c.name.c_str());
  ++failures;
}

std::vector<int> blocks(std::size_t n) { return std::vector<int>(n * kLength, -1); }

/// Whether each source's block is what it sent: in a slot of its own for each edge, or the same for
/// all.
bool is_right(const Case& c, const std::vector<int>& received, bool slots) {
  for (std::size_t s = 0; s < c.sources.size(); ++s) {
    for (int i = 0; i < kLength; ++i) {
      const int found = received[s * kLength + static_cast<std::size_t>(i)];
      const int wanted = c.sources[s] == MPI_PROC_NULL
                             ? -1
                             : value(c.sources[s], slots ? c.sender_slots[s] : 7, i);
      if (found != wanted) return false;
    }
  }
  return true;
}

/// The three forms of one procedure, with one list of arguments; `received` is cleared before each.
#define TRY(NAME, LOWER, SLOTS, ...)                     \
  {                                                      \
    for (int& number : received) number = -1;            \
    MPI_##NAME(__VA_ARGS__, c.comm);                     \
    expect(is_right(c, received, SLOTS), c, #NAME);      \
    for (int& number : received) number = -1;            \
    MPI_Request request;                                 \
    MPI_I##LOWER(__VA_ARGS__, c.comm, &request);         \
    MPI_Wait(&request, MPI_STATUS_IGNORE);               \
    expect(is_right(c, received, SLOTS), c, "I" #LOWER); \
  }
/// Persistent: started twice.
#define TRY_INIT(INIT, SLOTS, ...)                            \
  {                                                           \
    MPI_Request request;                                      \
    MPI_##INIT(__VA_ARGS__, c.comm, MPI_INFO_NULL, &request); \
    for (int round = 0; round < 2; ++round) {                 \
      for (int& number : received) number = -1;               \
      MPI_Start(&request);                                    \
      MPI_Wait(&request, MPI_STATUS_IGNORE);                  \
      expect(is_right(c, received, SLOTS), c, #INIT);         \
    }                                                         \
    MPI_Request_free(&request);                               \
  }

template <class Count>
struct Lists {
  std::vector<Count> counts;
  std::vector<int> places;
  std::vector<MPI_Aint> addresses, wide_places;
  std::vector<MPI_Datatype> types;
  explicit Lists(std::size_t n) : counts(n, kLength), types(n, MPI_INT) {
    for (std::size_t i = 0; i < n; ++i) {
      places.push_back(static_cast<int>(i) * kLength);
      wide_places.push_back(static_cast<MPI_Aint>(i) * kLength);
      addresses.push_back(static_cast<MPI_Aint>(i) * kLength * 4);
    }
  }
};

void try_all(const Case& c) {
  std::vector<int> same, slots, received;
  for (int i = 0; i < kLength; ++i) same.push_back(value(c.rank, 7, i));
  for (std::size_t s = 0; s < c.destinations.size(); ++s) {
    for (int i = 0; i < kLength; ++i) slots.push_back(value(c.rank, static_cast<int>(s), i));
  }
  received = blocks(c.sources.size());
  const std::size_t n_in = c.destinations.size(), n_out = c.sources.size();
  Lists<int> in(n_in), out(n_out);
  Lists<MPI_Count> in_c(n_in), out_c(n_out);

#define BLOCK same.data(), kLength, MPI_INT
#define EACH slots.data(), kLength, MPI_INT
#define TO received.data(), kLength, MPI_INT
#define V(L, P, BUFFER) BUFFER.data(), L.counts.data(), L.P.data(), MPI_INT
#define W(L, BUFFER) BUFFER.data(), L.counts.data(), L.addresses.data(), L.types.data()
  TRY(Neighbor_allgather, neighbor_allgather, false, BLOCK, TO)
  TRY(Neighbor_allgather_c, neighbor_allgather_c, false, BLOCK, TO)
  TRY(Neighbor_allgatherv, neighbor_allgatherv, false, BLOCK, V(out, places, received))
  TRY(Neighbor_allgatherv_c, neighbor_allgatherv_c, false, BLOCK, V(out_c, wide_places, received))
  TRY(Neighbor_alltoall, neighbor_alltoall, true, EACH, TO)
  TRY(Neighbor_alltoall_c, neighbor_alltoall_c, true, EACH, TO)
  TRY(Neighbor_alltoallv, neighbor_alltoallv, true, V(in, places, slots), V(out, places, received))
  TRY(Neighbor_alltoallv_c, neighbor_alltoallv_c, true, V(in_c, wide_places, slots),
      V(out_c, wide_places, received))
  TRY(Neighbor_alltoallw, neighbor_alltoallw, true, W(in, slots), W(out, received))
  TRY(Neighbor_alltoallw_c, neighbor_alltoallw_c, true, W(in_c, slots), W(out_c, received))
  TRY_INIT(Neighbor_allgather_init, false, BLOCK, TO)
  TRY_INIT(Neighbor_allgather_init_c, false, BLOCK, TO)
  TRY_INIT(Neighbor_allgatherv_init, false, BLOCK, V(out, places, received))
  TRY_INIT(Neighbor_allgatherv_init_c, false, BLOCK, V(out_c, wide_places, received))
  TRY_INIT(Neighbor_alltoall_init, true, EACH, TO)
  TRY_INIT(Neighbor_alltoall_init_c, true, EACH, TO)
  TRY_INIT(Neighbor_alltoallv_init, true, V(in, places, slots), V(out, places, received))
  TRY_INIT(Neighbor_alltoallv_init_c, true, V(in_c, wide_places, slots),
           V(out_c, wide_places, received))
  TRY_INIT(Neighbor_alltoallw_init, true, W(in, slots), W(out, received))
  TRY_INIT(Neighbor_alltoallw_init_c, true, W(in_c, slots), W(out_c, received))
}

void try_grid(const std::vector<int>& sizes, const std::vector<int>& periods,
              const std::string& name) {
  Case c{name, MPI_COMM_NULL, 0, {}, {}, {}};
  const int dimensions = static_cast<int>(sizes.size());
  MPI_Cart_create(MPI_COMM_WORLD, dimensions, sizes.data(), periods.data(), 0, &c.comm);
  if (c.comm == MPI_COMM_NULL) return;
  MPI_Comm_rank(c.comm, &c.rank);
  for (int d = 0; d < dimensions; ++d) {
    int lower = 0, upper = 0;
    MPI_Cart_shift(c.comm, d, 1, &lower, &upper);
    for (const int neighbor : {lower, upper}) {
      c.sources.push_back(neighbor);
      c.destinations.push_back(neighbor);
    }
    // What comes from below was sent upwards, and the other way round.
    c.sender_slots.push_back(2 * d + 1);
    c.sender_slots.push_back(2 * d);
  }
  try_all(c);
  MPI_Comm_free(&c.comm);
}

/// Two edges to the next rank, and one to itself.
void try_graph(int rank, int ranks) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  Case c{"a graph", MPI_COMM_NULL, rank, {before, rank, before}, {next, next, rank}, {0, 2, 1}};
  if (ranks == 1) c.sender_slots = {0, 1, 2};  // all are one pair's, in their order
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, c.sources.data(), MPI_UNWEIGHTED, 3,
                                 c.destinations.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &c.comm);
  try_all(c);
  MPI_Comm_free(&c.comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int n = 1; n <= ranks; ++n) {
    try_grid({n}, {1}, "a ring of " + std::to_string(n));
    try_grid({n}, {0}, "a row of " + std::to_string(n));
    try_grid({n, 1}, {1, 1}, "a torus of 1 x " + std::to_string(n));
    if (2 * n <= ranks) try_grid({n, 2}, {0, 1}, "a tube of 2 x " + std::to_string(n));
  }
  try_graph(rank, ranks);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && all == 0) std::puts("all right");
  MPI_Finalize();
  return all == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

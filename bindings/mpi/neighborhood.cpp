#include "bindings/mpi/neighborhood.h"

#include <algorithm>

#include "bindings/mpi/collective_forms.h"

namespace tutti::mpi {
namespace {

/// The blocks of all edges, those with the least label first: exchange() matches what goes between
/// two ranks in its order, which is so the same on both sides.
template <class BufferOf>
std::vector<Piece> labeled_pieces(const std::vector<Edge>& edges, const BufferOf& buffer_at) {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(edges.size()); ++i) {
    if (edges[static_cast<std::size_t>(i)].rank != MPI_PROC_NULL) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return edges[static_cast<std::size_t>(a)].label < edges[static_cast<std::size_t>(b)].label;
  });
  std::vector<Piece> all;
  for (const int i : order) all.push_back({edges[static_cast<std::size_t>(i)].rank, buffer_at(i)});
  return all;
}

template <class Out, class In>
Work between_neighbors(Comm& comm, const Out& out_at, const In& in_at) {
  const Neighborhood edges = neighborhood_of(comm);
  return exchange(labeled_pieces(edges.destinations, out_at), labeled_pieces(edges.sources, in_at),
                  comm.size());
}

void check_edges(const Block& block, std::size_t n, const char* which) {
  if (n > 0) check_buffer(block.buffer, block.count, *block.type, which);
}

void check_edges(const Blocks& blocks, std::size_t n, const char* which) {
  if (n > 0 && (!blocks.counts || !blocks.places)) {
    fail(MPI_ERR_ARG, "the list of counts or places of the {} buffer is null", which);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Buffer one = buffer_of(blocks, static_cast<int>(i));
    check_buffer(one.base, one.count, *one.type, which);
  }
}

void check_edges(const TypedBlocks& blocks, std::size_t n, const char* which) {
  for (std::size_t i = 0; i < n; ++i) {
    const Buffer one = buffer_of(blocks, static_cast<int>(i));
    check_buffer(one.base, one.count, *one.type, which);
  }
}

template <class In, class Out>
void check_both(const Comm& comm, const In& in, const Out& out) {
  if (in_place(in.buffer) || in_place(out.buffer)) {
    fail(MPI_ERR_BUFFER, "a collective of neighborhoods has no form in place");
  }
  const Neighborhood edges = neighborhood_of(comm);
  check_edges(in, edges.destinations.size(), "send");
  check_edges(out, edges.sources.size(), "receive");
}

template <class In, class Out>
Work each_its_own(Comm& comm, const In& in, const Out& out) {
  check_both(comm, in, out);
  return between_neighbors(
      comm, [&](int i) { return buffer_of(in, i); }, [&](int i) { return buffer_of(out, i); });
}

template <class Out>
Work the_same_for_all(Comm& comm, const Block& in, const Out& out) {
  check_both(comm, in, out);
  return between_neighbors(
      comm, [&](int) { return buffer_of(in); }, [&](int i) { return buffer_of(out, i); });
}

std::size_t destinations_of(MPI_Comm comm) {
  return neighborhood_of(comm_of(comm)).destinations.size();
}
std::size_t sources_of(MPI_Comm comm) { return neighborhood_of(comm_of(comm)).sources.size(); }

}  // namespace

Work NeighborAllgather::operator()(Comm& comm) const { return the_same_for_all(comm, in, out); }
Work NeighborAllgatherv::operator()(Comm& comm) const { return the_same_for_all(comm, in, out); }
Work NeighborAlltoall::operator()(Comm& comm) const { return each_its_own(comm, in, out); }
Work NeighborAlltoallv::operator()(Comm& comm) const { return each_its_own(comm, in, out); }
Work NeighborAlltoallw::operator()(Comm& comm) const { return each_its_own(comm, in, out); }

// --- The procedures

// clang-format off
#define TUTTI_LIST(C, P)                                                                    \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, C recvcount,      \
      MPI_Datatype recvtype,
TUTTI_MPI_SIX(Neighbor_allgather, neighbor_allgather, TUTTI_LIST,
              NeighborAllgather{block(sendbuf, sendcount, sendtype, on),
                                block(recvbuf, recvcount, recvtype, on)})
TUTTI_MPI_SIX(Neighbor_alltoall, neighbor_alltoall, TUTTI_LIST,
              NeighborAlltoall{block(sendbuf, sendcount, sendtype, on),
                               block(recvbuf, recvcount, recvtype, on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                                    \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf,                   \
      const C recvcounts[], const P displs[], MPI_Datatype recvtype,
TUTTI_MPI_SIX(Neighbor_allgatherv, neighbor_allgatherv, TUTTI_LIST,
              NeighborAllgatherv{block(sendbuf, sendcount, sendtype, on),
                                 blocks(recvbuf, recvcounts, displs, recvtype, on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                                     \
  const void *sendbuf, const C sendcounts[], const P sdispls[], MPI_Datatype sendtype,       \
      void *recvbuf, const C recvcounts[], const P rdispls[], MPI_Datatype recvtype,
TUTTI_MPI_SIX(Neighbor_alltoallv, neighbor_alltoallv, TUTTI_LIST,
              NeighborAlltoallv{blocks(sendbuf, sendcounts, sdispls, sendtype, on),
                                blocks(recvbuf, recvcounts, rdispls, recvtype, on)})
#undef TUTTI_LIST

// Displacements are addresses here, with either width of counts.
#define TUTTI_LIST(C, P)                                                                     \
  const void *sendbuf, const C sendcounts[], const MPI_Aint sdispls[],                       \
      const MPI_Datatype sendtypes[], void *recvbuf, const C recvcounts[],                   \
      const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
TUTTI_MPI_SIX(Neighbor_alltoallw, neighbor_alltoallw, TUTTI_LIST,
              NeighborAlltoallw{
                  typed_blocks(sendbuf, sendcounts, sdispls, sendtypes, destinations_of(comm), on),
                  typed_blocks(recvbuf, recvcounts, rdispls, recvtypes, sources_of(comm), on)})
#undef TUTTI_LIST
// clang-format on

}  // namespace tutti::mpi

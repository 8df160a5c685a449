// MPI_Bcast and all other collectives of a whole communicator, in all forms.
#include "bindings/mpi/collective_forms.h"

namespace tutti::mpi {
namespace {

/// Whether the rank's buffer at a root is used: at the root.
bool is_root(MPI_Comm comm, int root) {
  const Comm& c = comm_of(comm);
  return c.is_inter() ? root == MPI_ROOT : c.rank == root;
}
/// Whether the rank's buffer is used in the exchange with a root.
bool takes_part(MPI_Comm comm, int root) {
  const Comm& c = comm_of(comm);
  return !c.is_inter() || (root != MPI_ROOT && root != MPI_PROC_NULL);
}

std::size_t peers_of(MPI_Comm comm) {
  return static_cast<std::size_t>(comm_of(comm).peers().size());
}

}  // namespace

TUTTI_MPI_THREE(Barrier, barrier, , , Barrier{})

#define TUTTI_LIST(C, P) void *buffer, C count, MPI_Datatype datatype, int root,
TUTTI_MPI_SIX(Bcast, bcast, TUTTI_LIST, Bcast{block(buffer, count, datatype, on), root})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                               \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, C recvcount, \
      MPI_Datatype recvtype, int root,
TUTTI_MPI_SIX(Gather, gather, TUTTI_LIST,
              Gather{block(sendbuf, sendcount, sendtype, on, takes_part(comm, root)),
                     block(recvbuf, recvcount, recvtype, on, is_root(comm, root)), root})
TUTTI_MPI_SIX(Scatter, scatter, TUTTI_LIST,
              Scatter{block(sendbuf, sendcount, sendtype, on, is_root(comm, root)),
                      block(recvbuf, recvcount, recvtype, on, takes_part(comm, root)), root})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                                        \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, const C recvcounts[], \
      const P displs[], MPI_Datatype recvtype, int root,
TUTTI_MPI_SIX(Gatherv, gatherv, TUTTI_LIST,
              Gatherv{block(sendbuf, sendcount, sendtype, on, takes_part(comm, root)),
                      blocks(recvbuf, recvcounts, displs, recvtype, on, is_root(comm, root)), root})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                              \
  const void *sendbuf, const C sendcounts[], const P displs[], MPI_Datatype sendtype, \
      void *recvbuf, C recvcount, MPI_Datatype recvtype, int root,
TUTTI_MPI_SIX(Scatterv, scatterv, TUTTI_LIST,
              Scatterv{blocks(sendbuf, sendcounts, displs, sendtype, on, is_root(comm, root)),
                       block(recvbuf, recvcount, recvtype, on, takes_part(comm, root)), root})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                               \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, C recvcount, \
      MPI_Datatype recvtype,
TUTTI_MPI_SIX(Allgather, allgather, TUTTI_LIST,
              Allgather{block(sendbuf, sendcount, sendtype, on),
                        block(recvbuf, recvcount, recvtype, on)})
TUTTI_MPI_SIX(Alltoall, alltoall, TUTTI_LIST,
              Alltoall{block(sendbuf, sendcount, sendtype, on),
                       block(recvbuf, recvcount, recvtype, on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                                        \
  const void *sendbuf, C sendcount, MPI_Datatype sendtype, void *recvbuf, const C recvcounts[], \
      const P displs[], MPI_Datatype recvtype,
TUTTI_MPI_SIX(Allgatherv, allgatherv, TUTTI_LIST,
              Allgatherv{block(sendbuf, sendcount, sendtype, on),
                         blocks(recvbuf, recvcounts, displs, recvtype, on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                               \
  const void *sendbuf, const C sendcounts[], const P sdispls[], MPI_Datatype sendtype, \
      void *recvbuf, const C recvcounts[], const P rdispls[], MPI_Datatype recvtype,
TUTTI_MPI_SIX(Alltoallv, alltoallv, TUTTI_LIST,
              Alltoallv{blocks(sendbuf, sendcounts, sdispls, sendtype, on),
                        blocks(recvbuf, recvcounts, rdispls, recvtype, on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P)                                                                        \
  const void *sendbuf, const C sendcounts[], const P sdispls[], const MPI_Datatype sendtypes[], \
      void *recvbuf, const C recvcounts[], const P rdispls[], const MPI_Datatype recvtypes[],
TUTTI_MPI_SIX(Alltoallw, alltoallw, TUTTI_LIST,
              Alltoallw{typed_blocks(sendbuf, sendcounts, sdispls, sendtypes, peers_of(comm), on),
                        typed_blocks(recvbuf, recvcounts, rdispls, recvtypes, peers_of(comm), on)})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P) \
  const void *sendbuf, void *recvbuf, C count, MPI_Datatype datatype, MPI_Op op,
TUTTI_MPI_SIX(Allreduce, allreduce, TUTTI_LIST,
              Allreduce{operands(sendbuf, recvbuf, count, datatype, op, on)})
TUTTI_MPI_SIX(Reduce_scatter_block, reduce_scatter_block, TUTTI_LIST,
              ReduceScatterBlock{operands(sendbuf, recvbuf, count, datatype, op, on)})
TUTTI_MPI_SIX(Scan, scan, TUTTI_LIST,
              Scan{operands(sendbuf, recvbuf, count, datatype, op, on), false})
TUTTI_MPI_SIX(Exscan, exscan, TUTTI_LIST,
              Scan{operands(sendbuf, recvbuf, count, datatype, op, on), true})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P) \
  const void *sendbuf, void *recvbuf, C count, MPI_Datatype datatype, MPI_Op op, int root,
TUTTI_MPI_SIX(Reduce, reduce, TUTTI_LIST,
              Reduce{operands(sendbuf, recvbuf, count, datatype, op, on), root})
#undef TUTTI_LIST

#define TUTTI_LIST(C, P) \
  const void *sendbuf, void *recvbuf, const C recvcounts[], MPI_Datatype datatype, MPI_Op op,
TUTTI_MPI_SIX(Reduce_scatter, reduce_scatter, TUTTI_LIST,
              ReduceScatter{operands(sendbuf, recvbuf, 0, datatype, op, on), recvcounts})
#undef TUTTI_LIST

}  // namespace tutti::mpi

// MPI_Put, MPI_Get and the one-sided reductions, also with requests, which are complete at once.
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/window_access.h"

namespace tutti::mpi {
namespace {

/// Runs the body unless the target is MPI_PROC_NULL; gives a request if there is to be one.
template <class Body>
int one_sided(const char* procedure, MPI_Win win, int rank, MPI_Request* request, Body&& body) {
  return guarded(procedure, win, [&] {
    Win& w = win_of(win);
    if (rank != MPI_PROC_NULL) body(w);
    if (request != nullptr) *request = finished_request();
  });
}

Buffer origin(const void* address, MPI_Count count, MPI_Datatype type) {
  check_count(count);
  Type& t = committed_type(type);
  if (address == nullptr && count > 0 && t.predefined()) {
    fail(MPI_ERR_BUFFER, "the buffer is null, but the call has {} elements there", count);
  }
  return {const_cast<void*>(address), count, Held<Type>(t)};
}
/// Of an operand that MPI_NO_OP does not read.
Buffer operand(const void* address, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  return op == MPI_NO_OP ? Buffer{} : origin(address, count, type);
}

}  // namespace

#define TUTTI_TARGET \
  { target_rank, target_disp, target_count, target_datatype }
#define TUTTI_MPI_ONE_SIDED(COUNT, SUFFIX, PUT, GET, ACCUMULATE, GET_ACCUMULATE, EXTRA, REQUEST)   \
  int MPI_##PUT##SUFFIX(const void* origin_addr, COUNT origin_count, MPI_Datatype origin_datatype, \
                        int target_rank, MPI_Aint target_disp, COUNT target_count,                 \
                        MPI_Datatype target_datatype, MPI_Win win EXTRA) {                         \
    return one_sided("MPI_" #PUT, win, target_rank, REQUEST, [&](Win& w) {                         \
      put(w, origin(origin_addr, origin_count, origin_datatype), TUTTI_TARGET);                    \
    });                                                                                            \
  }                                                                                                \
  int MPI_##GET##SUFFIX(void* origin_addr, COUNT origin_count, MPI_Datatype origin_datatype,       \
                        int target_rank, MPI_Aint target_disp, COUNT target_count,                 \
                        MPI_Datatype target_datatype, MPI_Win win EXTRA) {                         \
    return one_sided("MPI_" #GET, win, target_rank, REQUEST, [&](Win& w) {                         \
      get(w, origin(origin_addr, origin_count, origin_datatype), TUTTI_TARGET);                    \
    });                                                                                            \
  }                                                                                                \
  int MPI_##ACCUMULATE##SUFFIX(const void* origin_addr, COUNT origin_count,                        \
                               MPI_Datatype origin_datatype, int target_rank,                      \
                               MPI_Aint target_disp, COUNT target_count,                           \
                               MPI_Datatype target_datatype, MPI_Op op, MPI_Win win EXTRA) {       \
    return one_sided("MPI_" #ACCUMULATE, win, target_rank, REQUEST, [&](Win& w) {                  \
      combine_at(w, operand(origin_addr, origin_count, origin_datatype, op), {}, TUTTI_TARGET,     \
                 op);                                                                              \
    });                                                                                            \
  }                                                                                                \
  int MPI_##GET_ACCUMULATE##SUFFIX(const void* origin_addr, COUNT origin_count,                    \
                                   MPI_Datatype origin_datatype, void* result_addr,                \
                                   COUNT result_count, MPI_Datatype result_datatype,               \
                                   int target_rank, MPI_Aint target_disp, COUNT target_count,      \
                                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win EXTRA) {   \
    return one_sided("MPI_" #GET_ACCUMULATE, win, target_rank, REQUEST, [&](Win& w) {              \
      combine_at(w, operand(origin_addr, origin_count, origin_datatype, op),                       \
                 origin(result_addr, result_count, result_datatype), TUTTI_TARGET, op);            \
    });                                                                                            \
  }
#define TUTTI_NOTHING
#define TUTTI_REQUEST , MPI_Request* request
TUTTI_MPI_ONE_SIDED(int, , Put, Get, Accumulate, Get_accumulate, TUTTI_NOTHING, nullptr)
TUTTI_MPI_ONE_SIDED(MPI_Count, _c, Put, Get, Accumulate, Get_accumulate, TUTTI_NOTHING, nullptr)
TUTTI_MPI_ONE_SIDED(int, , Rput, Rget, Raccumulate, Rget_accumulate, TUTTI_REQUEST, request)
TUTTI_MPI_ONE_SIDED(MPI_Count, _c, Rput, Rget, Raccumulate, Rget_accumulate, TUTTI_REQUEST, request)

int MPI_Fetch_and_op(const void* origin_addr, void* result_addr, MPI_Datatype datatype,
                     int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win) {
  return one_sided("MPI_Fetch_and_op", win, target_rank, nullptr, [&](Win& w) {
    combine_at(w, operand(origin_addr, 1, datatype, op), origin(result_addr, 1, datatype),
               {target_rank, target_disp, 1, datatype}, op);
  });
}
int MPI_Compare_and_swap(const void* origin_addr, const void* compare_addr, void* result_addr,
                         MPI_Datatype datatype, int target_rank, MPI_Aint target_disp,
                         MPI_Win win) {
  return one_sided("MPI_Compare_and_swap", win, target_rank, nullptr, [&](Win& w) {
    compare_and_swap(w, origin_addr, compare_addr, result_addr,
                     {target_rank, target_disp, 1, datatype});
  });
}

}  // namespace tutti::mpi

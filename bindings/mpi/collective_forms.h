// The forms that every collective has: blocking, I... (non-blocking) and ..._init (persistent),
// each with counts of int and (..._c) of MPI_Count. A macro makes the six of each.
#pragma once

#include <type_traits>
#include <utility>

#include "bindings/mpi/movement.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/reductions.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {

// Whether a call goes on after its return, and so shares what the program may free meanwhile.
using Returns = std::false_type;
using GoesOn = std::true_type;

inline Held<Type> held(MPI_Datatype type, Returns) { return Held<Type>(committed_type(type)); }
inline Held<Type> held(MPI_Datatype type, GoesOn) {
  committed_type(type);
  return Held<Type>(shared_type(type));
}
inline Held<Operator> held(MPI_Op op, Returns) { return Held<Operator>(operator_of(op)); }
inline Held<Operator> held(MPI_Op op, GoesOn) { return Held<Operator>(shared_operator(op)); }

/// The type is of no meaning where the buffer is not used.
inline Held<Type> held_if(bool used, MPI_Datatype type, auto goes_on) {
  return used ? held(type, goes_on) : Held<Type>(type_of(MPI_BYTE));
}

inline Block block(const void* buffer, MPI_Count count, MPI_Datatype type, auto goes_on,
                   bool used = true) {
  const bool has_type = used && !in_place(buffer);
  return {buffer, has_type ? count : 0, held_if(has_type, type, goes_on)};
}
template <class Count, class Place>
Blocks blocks(const void* buffer, const Count* counts, const Place* places, MPI_Datatype type,
              auto goes_on, bool used = true) {
  if (!used || in_place(buffer)) return {buffer, {}, {}, held_if(false, type, goes_on)};
  return {buffer, counts, places, held(type, goes_on)};
}
/// Of n blocks.
template <class Count, class Place>
TypedBlocks typed_blocks(const void* buffer, const Count* counts, const Place* places,
                         const MPI_Datatype* types, std::size_t n, auto goes_on) {
  TypedBlocks all{buffer, counts, places, {}};
  if (in_place(buffer)) return all;
  for (std::size_t i = 0; i < n; ++i) {
    // The type of a block without elements may be any.
    all.types.push_back(counts[i] == 0 && types[i] == MPI_DATATYPE_NULL ? held(MPI_BYTE, goes_on)
                                                                        : held(types[i], goes_on));
  }
  return all;
}

inline Operands operands(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                         auto goes_on) {
  return {in, out, count, held(type, goes_on), held(op, goes_on), type};
}

template <class Make>
int blocking(const char* procedure, MPI_Comm comm, const Make& make) {
  return guarded(procedure, comm, [&] {
    Comm& c = comm_of(comm);
    const Work work = make(Returns())(c);
    run(c.tutti, work.call);
    if (work.finish) work.finish();
  });
}

template <class Collective>
void begin(Request& request, const Collective& collective) {
  Work work = collective(*request.comm);
  // The memory of the call lives until it is over, also where nothing is left to do then.
  request.finish = [staging = std::move(work.staging), then = std::move(work.finish)] {
    if (then) then();
  };
  request.future = (request.tutti ? request.tutti : request.comm->tutti).start(work.call);
}

template <class Make>
int non_blocking(const char* procedure, MPI_Comm comm, MPI_Request* handle, const Make& make) {
  return guarded(procedure, comm, [&] {
    auto request = std::make_shared<Request>(RequestKind::collective);
    request->procedure = procedure;
    request->comm = shared_comm(comm);
    request->active = true;
    begin(*request, make(GoesOn()));
    *handle = requests().add(std::move(request));
  });
}

/// How many blocks a rank's lists have, in and out.
inline std::pair<int, int> blocks_of(const auto&, const Comm& comm) {
  return {comm.peers().size(), comm.peers().size()};
}
/// Copies the lists of a collective that is started again later.
template <class Collective>
void keep_lists(Collective& collective, const Comm& comm) {
  [[maybe_unused]] const auto [ins, outs] = blocks_of(collective, comm);
  if constexpr (requires { collective.in.counts; }) {
    collective.in.counts.keep(ins);
    collective.in.places.keep(ins);
  }
  if constexpr (requires { collective.out.counts; }) {
    collective.out.counts.keep(outs);
    collective.out.places.keep(outs);
  }
  if constexpr (requires { collective.counts; }) collective.counts.keep(comm.size());
}

template <class Make>
int persistent(const char* procedure, MPI_Comm comm, MPI_Request* handle, const Make& make) {
  return guarded(procedure, comm, [&] {
    auto request = std::make_shared<Request>(RequestKind::collective);
    request->procedure = procedure;
    request->comm = shared_comm(comm);
    request->tutti = communicator_of_starts(*request->comm);
    request->persistent = true;
    auto collective = make(GoesOn());
    keep_lists(collective, *request->comm);
    request->begin = [collective = std::move(collective)](Request& r) { begin(r, collective); };
    *handle = requests().add(std::move(request));
  });
}

}  // namespace tutti::mpi

// LIST(COUNT, PLACE): the parameters before the communicator. The rest: the structure; `on` says
// whether the call goes on.
#define TUTTI_MPI_SIX(NAME, LOWER, LIST, ...)                 \
  TUTTI_MPI_THREE(NAME, LOWER, , LIST(int, int), __VA_ARGS__) \
  TUTTI_MPI_THREE(NAME, LOWER, _c, LIST(MPI_Count, MPI_Aint), __VA_ARGS__)
#define TUTTI_MPI_THREE(NAME, LOWER, SUFFIX, PARAMETERS, ...)                                    \
  int MPI_##NAME##SUFFIX(PARAMETERS MPI_Comm comm) {                                             \
    return blocking("MPI_" #NAME, comm, [&]([[maybe_unused]] auto on) { return __VA_ARGS__; });  \
  }                                                                                              \
  int MPI_I##LOWER##SUFFIX(PARAMETERS MPI_Comm comm, MPI_Request* request) {                     \
    return non_blocking("MPI_I" #LOWER, comm, request,                                           \
                        [&]([[maybe_unused]] auto on) { return __VA_ARGS__; });                  \
  }                                                                                              \
  int MPI_##NAME##_init##SUFFIX(PARAMETERS MPI_Comm comm, MPI_Info info, MPI_Request* request) { \
    (void)info;                                                                                  \
    return persistent("MPI_" #NAME "_init", comm, request,                                       \
                      [&]([[maybe_unused]] auto on) { return __VA_ARGS__; });                    \
  }

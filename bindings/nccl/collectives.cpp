// The collectives, send and recv: arguments into a call of Tutti's, the rest is the group's.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bindings/nccl/export.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/log.h"
#include "bindings/nccl/operators.h"

namespace tutti::nccl {
namespace {

/// Refuses what a caller insists on and does not get. All else in it is advice about GPUs.
void check_config(const ncclCollConfig_t& config) {
  if (config.magic != NCCL_API_MAGIC || config.size < offsetof(ncclCollConfig_t, ext)) {
    refuse_argument("the ncclCollConfig_t was not initialised with NCCL_COLLCONFIG_INITIALIZER");
  }
  ncclCollConfig_t given = NCCL_COLLCONFIG_INITIALIZER;
  std::memcpy(&given, &config, std::min(config.size, sizeof given));  // older ones are shorter
  if (given.algSelection != nullptr && *given.algSelection != '\0' &&
      given.forceAlgSelection != 0) {
    refuse_usage(fmt::format(
        "algSelection is \"{}\", but Tutti does not choose algorithms by the call; NCCL_ALGO "
        "chooses for all calls, and with forceAlgSelection = 0 this is ignored",
        given.algSelection));
  }
  if (given.launchCompletionEvent != nullptr) {
    refuse_usage(
        "launchCompletionEvent is not supported by Tutti; record an event on the stream after the "
        "call");
  }
}

/// `call` has all but the type and the operator. It stays where it is. A copy would read what was
/// just written in other pieces, and so wait for all earlier stores; the last stores of the call
/// before may still be on their way to another core.
ncclResult_t perform(std::string_view function, ncclComm_t handle, cudaStream_t stream, Call&& call,
                     ncclDataType_t type, ncclRedOp_t op = ncclSum,
                     const ncclCollConfig_t* config = nullptr) {
  return guarded_in_group(function, [&] {
    ncclComm& comm = usable(handle);
    if (config != nullptr) check_config(*config);
    call.type = data_type(type);
    const void* const scalar =
        is_reduction(call.collective) ? set_operator(comm, call, op) : nullptr;
    if (logs(LogLevel::trace)) {
      write_log(LogLevel::trace,
                fmt::format("{}: sendbuff {} recvbuff {} count {} type {} op {} root {} peer {} "
                            "comm {} rank {} of {}",
                            function, call.in, call.out, call.count, static_cast<int>(type),
                            static_cast<int>(op), call.root, call.peer, fmt::ptr(&comm), comm.rank,
                            comm.size));
    }
    if (scalar == nullptr && runs_at_once(comm) && is_simple(call)) {
      return run_at_once(function, comm, call);
    }
    return submit(function, Task{.comm = &comm, .call = call, .stream = stream, .scalar = scalar});
  });
}

Call rooted(Collective collective, const void* in, void* out, std::size_t count, int root) {
  return {collective, in, out, count, DataType::uint8, {}, root};
}

Call unrooted(Collective collective, const void* in, void* out, std::size_t count) {
  return {collective, in, out, count};
}

Call message(const void* in, void* out, std::size_t count, int peer, bool sends) {
  return {Collective::send_recv, in, out, count, DataType::uint8, {}, 0, peer, sends};
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;
using tutti::Collective;

NCCL_API(ncclResult_t, ncclReduce,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclReduce", comm, stream,
                 rooted(Collective::reduce, sendbuff, recvbuff, count, root), datatype, op);
}
NCCL_API(ncclResult_t, ncclReduceConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
          const ncclCollConfig_t* config)) {
  return perform("ncclReduceConfig", comm, stream,
                 rooted(Collective::reduce, sendbuff, recvbuff, count, root), datatype, op, config);
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclBroadcast", comm, stream,
                 rooted(Collective::broadcast, sendbuff, recvbuff, count, root), datatype);
}
NCCL_API(ncclResult_t, ncclBroadcastConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclBroadcastConfig", comm, stream,
                 rooted(Collective::broadcast, sendbuff, recvbuff, count, root), datatype, ncclSum,
                 config);
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclBcast", comm, stream, rooted(Collective::broadcast, buff, buff, count, root),
                 datatype);
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllReduce", comm, stream,
                 unrooted(Collective::all_reduce, sendbuff, recvbuff, count), datatype, op);
}
NCCL_API(ncclResult_t, ncclAllReduceConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAllReduceConfig", comm, stream,
                 unrooted(Collective::all_reduce, sendbuff, recvbuff, count), datatype, op, config);
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclReduceScatter", comm, stream,
                 unrooted(Collective::reduce_scatter, sendbuff, recvbuff, recvcount), datatype, op);
}
NCCL_API(ncclResult_t, ncclReduceScatterConfig,
         (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclReduceScatterConfig", comm, stream,
                 unrooted(Collective::reduce_scatter, sendbuff, recvbuff, recvcount), datatype, op,
                 config);
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllGather", comm, stream,
                 unrooted(Collective::all_gather, sendbuff, recvbuff, sendcount), datatype);
}
NCCL_API(ncclResult_t, ncclAllGatherConfig,
         (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAllGatherConfig", comm, stream,
                 unrooted(Collective::all_gather, sendbuff, recvbuff, sendcount), datatype, ncclSum,
                 config);
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAlltoAll", comm, stream,
                 unrooted(Collective::all_to_all, sendbuff, recvbuff, count), datatype);
}
NCCL_API(ncclResult_t, ncclAlltoAllConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAlltoAllConfig", comm, stream,
                 unrooted(Collective::all_to_all, sendbuff, recvbuff, count), datatype, ncclSum,
                 config);
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclGather", comm, stream,
                 rooted(Collective::gather, sendbuff, recvbuff, count, root), datatype);
}
NCCL_API(ncclResult_t, ncclGatherConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclGatherConfig", comm, stream,
                 rooted(Collective::gather, sendbuff, recvbuff, count, root), datatype, ncclSum,
                 config);
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclScatter", comm, stream,
                 rooted(Collective::scatter, sendbuff, recvbuff, count, root), datatype);
}
NCCL_API(ncclResult_t, ncclScatterConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclScatterConfig", comm, stream,
                 rooted(Collective::scatter, sendbuff, recvbuff, count, root), datatype, ncclSum,
                 config);
}

NCCL_API(ncclResult_t, ncclSend,
         (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclSend", comm, stream, message(sendbuff, nullptr, count, peer, true), datatype);
}

NCCL_API(ncclResult_t, ncclRecv,
         (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclRecv", comm, stream, message(nullptr, recvbuff, count, peer, false),
                 datatype);
}

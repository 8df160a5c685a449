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

/// What the functions have in common; `call` holds the rest.
struct Arguments {
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream;
  const ncclCollConfig_t* config = nullptr;
};

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

ncclResult_t perform(std::string_view function, const Arguments& arguments, Call&& call,
                     ncclRedOp_t op = ncclSum) {
  return guarded_in_group(function, [&] {
    Task task;
    task.comm = &usable(arguments.comm);
    if (arguments.config != nullptr) check_config(*arguments.config);
    task.stream = arguments.stream;
    call.type = data_type(arguments.type);
    task.call = std::move(call);
    if (is_reduction(task.call.collective)) set_operator(task, op);
    if (logs(LogLevel::trace)) {
      write_log(LogLevel::trace,
                fmt::format("{}: sendbuff {} recvbuff {} count {} type {} op {} root {} peer {} "
                            "comm {} rank {} of {}",
                            function, task.call.in, task.call.out, task.call.count,
                            static_cast<int>(arguments.type), static_cast<int>(op), task.call.root,
                            task.call.peer, fmt::ptr(task.comm), task.comm->rank, task.comm->size));
    }
    return submit(function, std::move(task));
  });
}

Call unrooted(Collective collective, const void* in, void* out, std::size_t count) {
  return {.collective = collective, .in = in, .out = out, .count = count};
}

Call rooted(Collective collective, const void* in, void* out, std::size_t count, int root) {
  return {.collective = collective, .in = in, .out = out, .count = count, .root = root};
}

Call message(const void* in, void* out, std::size_t count, int peer, bool sends) {
  return {.collective = Collective::send_recv,
          .in = in,
          .out = out,
          .count = count,
          .peer = peer,
          .sends = sends};
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;
using tutti::Collective;

NCCL_API(ncclResult_t, ncclReduce,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclReduce", {datatype, comm, stream},
                 rooted(Collective::reduce, sendbuff, recvbuff, count, root), op);
}
NCCL_API(ncclResult_t, ncclReduceConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
          const ncclCollConfig_t* config)) {
  return perform("ncclReduceConfig", {datatype, comm, stream, config},
                 rooted(Collective::reduce, sendbuff, recvbuff, count, root), op);
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclBroadcast", {datatype, comm, stream},
                 rooted(Collective::broadcast, sendbuff, recvbuff, count, root));
}
NCCL_API(ncclResult_t, ncclBroadcastConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclBroadcastConfig", {datatype, comm, stream, config},
                 rooted(Collective::broadcast, sendbuff, recvbuff, count, root));
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclBcast", {datatype, comm, stream},
                 rooted(Collective::broadcast, buff, buff, count, root));
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllReduce", {datatype, comm, stream},
                 unrooted(Collective::all_reduce, sendbuff, recvbuff, count), op);
}
NCCL_API(ncclResult_t, ncclAllReduceConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAllReduceConfig", {datatype, comm, stream, config},
                 unrooted(Collective::all_reduce, sendbuff, recvbuff, count), op);
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclReduceScatter", {datatype, comm, stream},
                 unrooted(Collective::reduce_scatter, sendbuff, recvbuff, recvcount), op);
}
NCCL_API(ncclResult_t, ncclReduceScatterConfig,
         (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclReduceScatterConfig", {datatype, comm, stream, config},
                 unrooted(Collective::reduce_scatter, sendbuff, recvbuff, recvcount), op);
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllGather", {datatype, comm, stream},
                 unrooted(Collective::all_gather, sendbuff, recvbuff, sendcount));
}
NCCL_API(ncclResult_t, ncclAllGatherConfig,
         (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAllGatherConfig", {datatype, comm, stream, config},
                 unrooted(Collective::all_gather, sendbuff, recvbuff, sendcount));
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAlltoAll", {datatype, comm, stream},
                 unrooted(Collective::all_to_all, sendbuff, recvbuff, count));
}
NCCL_API(ncclResult_t, ncclAlltoAllConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclAlltoAllConfig", {datatype, comm, stream, config},
                 unrooted(Collective::all_to_all, sendbuff, recvbuff, count));
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclGather", {datatype, comm, stream},
                 rooted(Collective::gather, sendbuff, recvbuff, count, root));
}
NCCL_API(ncclResult_t, ncclGatherConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclGatherConfig", {datatype, comm, stream, config},
                 rooted(Collective::gather, sendbuff, recvbuff, count, root));
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclScatter", {datatype, comm, stream},
                 rooted(Collective::scatter, sendbuff, recvbuff, count, root));
}
NCCL_API(ncclResult_t, ncclScatterConfig,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {
  return perform("ncclScatterConfig", {datatype, comm, stream, config},
                 rooted(Collective::scatter, sendbuff, recvbuff, count, root));
}

NCCL_API(ncclResult_t, ncclSend,
         (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclSend", {datatype, comm, stream},
                 message(sendbuff, nullptr, count, peer, true));
}

NCCL_API(ncclResult_t, ncclRecv,
         (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform("ncclRecv", {datatype, comm, stream},
                 message(nullptr, recvbuff, count, peer, false));
}

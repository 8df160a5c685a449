// The collectives, send and recv: arguments into a call of Tutti's, the rest is the group's.
#include <fmt/format.h>

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
};

ncclResult_t perform(std::string_view function, const Arguments& arguments, Call&& call,
                     ncclRedOp_t op = ncclSum) {
  return guarded_in_group(function, [&] {
    Task task;
    task.comm = &usable(arguments.comm);
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
                 {.collective = Collective::reduce,
                  .in = sendbuff,
                  .out = recvbuff,
                  .count = count,
                  .root = root},
                 op);
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
          cudaStream_t stream)) {
  return perform(
      "ncclBcast", {datatype, comm, stream},
      {.collective = Collective::broadcast, .in = buff, .out = buff, .count = count, .root = root});
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclBroadcast", {datatype, comm, stream},
                 {.collective = Collective::broadcast,
                  .in = sendbuff,
                  .out = recvbuff,
                  .count = count,
                  .root = root});
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllReduce", {datatype, comm, stream},
                 {Collective::all_reduce, sendbuff, recvbuff, count}, op);
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclReduceScatter", {datatype, comm, stream},
                 {Collective::reduce_scatter, sendbuff, recvbuff, recvcount}, op);
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAllGather", {datatype, comm, stream},
                 {Collective::all_gather, sendbuff, recvbuff, sendcount});
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclAlltoAll", {datatype, comm, stream},
                 {Collective::all_to_all, sendbuff, recvbuff, count});
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclGather", {datatype, comm, stream},
                 {.collective = Collective::gather,
                  .in = sendbuff,
                  .out = recvbuff,
                  .count = count,
                  .root = root});
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream)) {
  return perform("ncclScatter", {datatype, comm, stream},
                 {.collective = Collective::scatter,
                  .in = sendbuff,
                  .out = recvbuff,
                  .count = count,
                  .root = root});
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

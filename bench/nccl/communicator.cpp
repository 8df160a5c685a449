// From Tutti's calls to NCCL's functions; see communicator.h.
#include "bench/nccl/communicator.h"

#include <fmt/format.h>

#include <cstddef>

#include "core/error.h"

namespace tutti::bench {

namespace {

ncclDataType_t type_of(const Call& call) { return static_cast<ncclDataType_t>(call.type); }

}  // namespace

void NcclCommunicator::run(const Call& call) {
  const std::size_t count = call.count;
  const ncclDataType_t type = type_of(call);
  switch (call.collective) {
    case Collective::all_reduce:
      return nccl_->check(
          nccl_->all_reduce(call.in, call.out, count, type, operator_of(call), comm_, stream_),
          "ncclAllReduce");
    case Collective::all_gather:
      return nccl_->check(nccl_->all_gather(call.in, call.out, count, type, comm_, stream_),
                          "ncclAllGather");
    case Collective::reduce_scatter:
      return nccl_->check(
          nccl_->reduce_scatter(call.in, call.out, count, type, operator_of(call), comm_, stream_),
          "ncclReduceScatter");
    case Collective::broadcast:
      return nccl_->check(
          nccl_->broadcast(call.in, call.out, count, type, call.root, comm_, stream_),
          "ncclBroadcast");
    case Collective::reduce:
      return nccl_->check(nccl_->reduce(call.in, call.out, count, type, operator_of(call),
                                        call.root, comm_, stream_),
                          "ncclReduce");
    case Collective::gather:
      return nccl_->check(nccl_->gather(call.in, call.out, count, type, call.root, comm_, stream_),
                          "ncclGather");
    case Collective::scatter:
      return nccl_->check(nccl_->scatter(call.in, call.out, count, type, call.root, comm_, stream_),
                          "ncclScatter");
    case Collective::all_to_all:
      return nccl_->check(nccl_->all_to_all(call.in, call.out, count, type, comm_, stream_),
                          "ncclAlltoAll");
    default:
      return run_messages(call);
  }
}

// send_recv, and all_to_all_v, which NCCL has no function for.
void NcclCommunicator::run_messages(const Call& call) {
  if (call.collective == Collective::send_recv) {
    if (call.sends) {
      return nccl_->check(
          nccl_->send(call.in, call.count, type_of(call), call.peer, comm_, stream_), "ncclSend");
    }
    return nccl_->check(nccl_->recv(call.out, call.count, type_of(call), call.peer, comm_, stream_),
                        "ncclRecv");
  }
  if (call.collective != Collective::all_to_all_v) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("NCCL has no function for {}", tutti::name(call.collective)));
  }
  nccl_->check(nccl_->group_start(), "ncclGroupStart");
  try {
    exchange(call);
  } catch (...) {
    nccl_->group_end();  // or what follows would be in it
    throw;
  }
  nccl_->check(nccl_->group_end(), "ncclGroupEnd");
}

void NcclCommunicator::exchange(const Call& call) {
  const ncclDataType_t type = type_of(call);
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  for (std::size_t peer = 0; peer < call.in_counts.size(); ++peer) {
    const int to = static_cast<int>(peer);
    nccl_->check(nccl_->send(in, call.in_counts[peer], type, to, comm_, stream_), "ncclSend");
    nccl_->check(nccl_->recv(out, call.out_counts[peer], type, to, comm_, stream_), "ncclRecv");
    in += call.in_counts[peer] * size_of(call.type);
    out += call.out_counts[peer] * size_of(call.type);
  }
}

ncclRedOp_t NcclCommunicator::operator_of(const Call& call) {
  if (call.op.kind != ReduceKind::pre_multiplied_sum) {
    return static_cast<ncclRedOp_t>(call.op.kind);
  }
  if (op_ && op_type_ == call.type && op_scalar_ == call.op.scalar) return *op_;
  clear();
  ncclRedOp_t op{};
  std::uint64_t scalar = call.op.scalar;  // its low bytes are the number
  nccl_->check(nccl_->red_op_create(&op, &scalar, type_of(call), ncclScalarHostImmediate, comm_),
               "ncclRedOpCreatePreMulSum");
  op_ = op;
  op_type_ = call.type;
  op_scalar_ = call.op.scalar;
  return op;
}

void NcclCommunicator::clear() noexcept {
  if (op_) nccl_->red_op_destroy(*op_, comm_);
  op_.reset();
}

}  // namespace tutti::bench

// From Tutti's calls to NCCL's functions; see nccl_library.h.
#include "bench/perf/nccl_library.h"

#include <fmt/format.h>

#include <exception>
#include <thread>

namespace tutti::perf {

namespace {

using Clock = std::chrono::steady_clock;

// Asking NCCL for errors costs time that is none of the call's.
constexpr std::chrono::milliseconds kBetweenLooks{10};

ncclDataType_t type_of(const Call& call) { return static_cast<ncclDataType_t>(call.type); }

}  // namespace

Nccl::Nccl(const NcclFunctions& functions, const PerfOptions& options, Communicator& control,
           const NcclRanks& ranks)
    : nccl_(functions),
      local_register_(options.local_register),
      timeout_(options.timeout_seconds),
      ranks_(static_cast<std::size_t>(ranks.count)) {
  // A kernel of a rank waits for the others', so each has a stream.
  for (std::size_t local = 0; local < ranks.devices.size(); ++local) {
    gpu::use(ranks.devices[local]);
    streams_.push_back(std::make_unique<gpu::Stream>());
    ranks_[local].stream = static_cast<cudaStream_t>(streams_.back()->handle());
  }
  join(control, ranks);
}

void Nccl::join(Communicator& control, const NcclRanks& ranks) {
  struct Wire {
    ncclUniqueId id;
    bool made = false;
  } wire{};
  if (control.rank() == 0) {
    attempt([&] {
      nccl_.check(nccl_.get_unique_id(&wire.id), "ncclGetUniqueId");
      wire.made = true;
    });
  }
  control.broadcast(&wire, &wire, sizeof wire, DataType::uint8, 0);
  if (!wire.made) return stop("rank 0 could not make an id");
  std::vector<ncclComm_t> made(ranks_.size());  // all or none
  attempt([&] {
    if (made.size() > 1) group_start();
    for (std::size_t local = 0; local < made.size(); ++local) {
      if (!ranks.devices.empty()) gpu::use(ranks.devices[local]);
      nccl_.check(nccl_.comm_init_rank(&made[local], ranks.size, wire.id,
                                       ranks.first + static_cast<int>(local)),
                  "ncclCommInitRank");
    }
    if (made.size() > 1) group_end();
    for (std::size_t local = 0; local < made.size(); ++local) ranks_[local].comm = made[local];
  });
}

Nccl::~Nccl() {
  for (const Registered& r : registered_) {
    if (local_register_ == 1) {
      nccl_.comm_deregister(r.comm, r.handle);
    } else {
      nccl_.comm_window_deregister(r.comm, static_cast<ncclWindow_t>(r.handle));
    }
  }
  for (Rank& rank : ranks_) {
    if (rank.comm == nullptr) continue;
    if (std::uncaught_exceptions() > 0) {  // the other ranks may not come
      nccl_.comm_abort(rank.comm);
      continue;
    }
    if (rank.op) nccl_.red_op_destroy(*rank.op, rank.comm);
    nccl_.comm_destroy(rank.comm);
  }
}

void Nccl::stop(const std::string& why) {
  if (failure_) return;
  failure_ = why;
  registered_.clear();
  for (; open_groups_ > 0; --open_groups_) nccl_.group_end();  // or what follows would be in it
  for (Rank& rank : ranks_) {
    if (rank.comm != nullptr) nccl_.comm_abort(rank.comm);
    rank.comm = nullptr;
  }
}

void Nccl::register_memory(std::span<const Memory> memory) {
  if (local_register_ == 0 || streams_.empty()) return;
  attempt([&] {
    const bool windows = local_register_ == 2;
    if (windows ? nccl_.comm_window_register == nullptr : nccl_.comm_register == nullptr) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("it cannot register memory (--local_register {})", local_register_));
    }
    std::vector<void*> handles(memory.size());
    std::vector<ncclWindow_t> opened(memory.size());
    if (windows) group_start();  // all ranks have to meet
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const auto& [local, data, bytes] = memory[i];
      if (windows) {
        nccl_.check(nccl_.comm_window_register(ranks_[local].comm, data, bytes, &opened[i],
                                               NCCL_WIN_COLL_SYMMETRIC),
                    "ncclCommWindowRegister");
      } else {
        nccl_.check(nccl_.comm_register(ranks_[local].comm, data, bytes, &handles[i]),
                    "ncclCommRegister");
      }
    }
    if (windows) group_end();
    for (std::size_t i = 0; i < memory.size(); ++i) {
      void* const handle = windows ? static_cast<void*>(opened[i]) : handles[i];
      if (handle != nullptr) registered_.push_back({ranks_[memory[i].local].comm, handle});
    }
  });
}

void Nccl::group_start() {
  nccl_.check(nccl_.group_start(), "ncclGroupStart");
  ++open_groups_;
}

void Nccl::group_end() {
  --open_groups_;
  nccl_.check(nccl_.group_end(), "ncclGroupEnd");
}

void Nccl::run(std::size_t local, const Call& call) {
  Rank& rank = ranks_[local];
  const std::size_t count = call.count;
  const ncclDataType_t type = type_of(call);
  const ncclComm_t comm = rank.comm;
  const cudaStream_t stream = rank.stream;
  switch (call.collective) {
    case Collective::all_reduce:
      return nccl_.check(
          nccl_.all_reduce(call.in, call.out, count, type, operator_of(rank, call), comm, stream),
          "ncclAllReduce");
    case Collective::all_gather:
      return nccl_.check(nccl_.all_gather(call.in, call.out, count, type, comm, stream),
                         "ncclAllGather");
    case Collective::reduce_scatter:
      return nccl_.check(nccl_.reduce_scatter(call.in, call.out, count, type,
                                              operator_of(rank, call), comm, stream),
                         "ncclReduceScatter");
    case Collective::broadcast:
      return nccl_.check(nccl_.broadcast(call.in, call.out, count, type, call.root, comm, stream),
                         "ncclBroadcast");
    case Collective::reduce:
      return nccl_.check(nccl_.reduce(call.in, call.out, count, type, operator_of(rank, call),
                                      call.root, comm, stream),
                         "ncclReduce");
    case Collective::gather:
      return nccl_.check(nccl_.gather(call.in, call.out, count, type, call.root, comm, stream),
                         "ncclGather");
    case Collective::scatter:
      return nccl_.check(nccl_.scatter(call.in, call.out, count, type, call.root, comm, stream),
                         "ncclScatter");
    case Collective::all_to_all:
      return nccl_.check(nccl_.all_to_all(call.in, call.out, count, type, comm, stream),
                         "ncclAlltoAll");
    default:
      return run_messages(rank, call);
  }
}

// send_recv, and all_to_all_v, which NCCL has no function for.
void Nccl::run_messages(Rank& rank, const Call& call) {
  const ncclDataType_t type = type_of(call);
  const auto send = [&](const void* in, std::size_t count, int peer) {
    nccl_.check(nccl_.send(in, count, type, peer, rank.comm, rank.stream), "ncclSend");
  };
  const auto receive = [&](void* out, std::size_t count, int peer) {
    nccl_.check(nccl_.recv(out, count, type, peer, rank.comm, rank.stream), "ncclRecv");
  };
  if (call.collective == Collective::send_recv) {
    if (call.sends) return send(call.in, call.count, call.peer);
    return receive(call.out, call.count, call.peer);
  }
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  group_start();
  for (std::size_t peer = 0; peer < call.in_counts.size(); ++peer) {
    send(in, call.in_counts[peer], static_cast<int>(peer));
    receive(out, call.out_counts[peer], static_cast<int>(peer));
    in += call.in_counts[peer] * size_of(call.type);
    out += call.out_counts[peer] * size_of(call.type);
  }
  group_end();
}

ncclRedOp_t Nccl::operator_of(Rank& rank, const Call& call) {
  if (call.op.kind != ReduceKind::pre_multiplied_sum) {
    return static_cast<ncclRedOp_t>(call.op.kind);
  }
  if (rank.op && rank.op_type == call.type && rank.op_scalar == call.op.scalar) return *rank.op;
  if (rank.op) nccl_.check(nccl_.red_op_destroy(*rank.op, rank.comm), "ncclRedOpDestroy");
  rank.op.reset();
  ncclRedOp_t op{};
  std::uint64_t scalar = call.op.scalar;  // its low bytes are the number
  nccl_.check(nccl_.red_op_create(&op, &scalar, type_of(call), ncclScalarHostImmediate, rank.comm),
              "ncclRedOpCreatePreMulSum");
  rank.op = op;
  rank.op_type = call.type;
  rank.op_scalar = call.op.scalar;
  return op;
}

void Nccl::finish() {
  const Clock::time_point start = Clock::now();
  Clock::time_point look = start + kBetweenLooks;
  while (!streams_are_idle()) {
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now < look) continue;
    look = now + kBetweenLooks;
    check();
    if (timeout_.count() > 0 && now - start > timeout_) {
      throw Error(ErrorCode::timed_out,
                  fmt::format("a call has not ended in the {} s of --timeout", timeout_.count()));
    }
  }
}

void Nccl::check() {
  for (const Rank& rank : ranks_) {
    ncclResult_t result = ncclSuccess;
    nccl_.check(nccl_.comm_get_async_error(rank.comm, &result), "ncclCommGetAsyncError");
    nccl_.check(result, "a call");
  }
}

}  // namespace tutti::perf

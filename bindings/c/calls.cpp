// Collectives, messages, groups and started calls.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include "bindings/c/boundary.h"

namespace tutti::c {
namespace {

static_assert(static_cast<int>(Collective::all_reduce) == TUTTI_ALL_REDUCE);
static_assert(static_cast<int>(Collective::all_gather) == TUTTI_ALL_GATHER);
static_assert(static_cast<int>(Collective::reduce_scatter) == TUTTI_REDUCE_SCATTER);
static_assert(static_cast<int>(Collective::broadcast) == TUTTI_BROADCAST);
static_assert(static_cast<int>(Collective::reduce) == TUTTI_REDUCE);
static_assert(static_cast<int>(Collective::gather) == TUTTI_GATHER);
static_assert(static_cast<int>(Collective::scatter) == TUTTI_SCATTER);
static_assert(static_cast<int>(Collective::all_to_all) == TUTTI_ALL_TO_ALL);
static_assert(static_cast<int>(Collective::all_gather_v) == TUTTI_ALL_GATHER_V);
static_assert(static_cast<int>(Collective::reduce_scatter_v) == TUTTI_REDUCE_SCATTER_V);
static_assert(static_cast<int>(Collective::all_to_all_v) == TUTTI_ALL_TO_ALL_V);
static_assert(static_cast<int>(Collective::send_recv) == TUTTI_SEND_RECV);
static_assert(static_cast<int>(Collective::barrier) == TUTTI_BARRIER);
static_assert(static_cast<int>(DataType::float8_e5m2) == TUTTI_FLOAT8_E5M2);
static_assert(static_cast<int>(DataType::bfloat16) == TUTTI_BFLOAT16);
static_assert(static_cast<int>(ReduceKind::pre_multiplied_sum) == TUTTI_PRE_MULTIPLIED_SUM);
static_assert(static_cast<int>(ReduceKind::avg) == TUTTI_AVG);

constexpr std::size_t kFirstCall = offsetof(tutti_call, reserved) + sizeof(int);
static_assert(kFirstCall == sizeof(tutti_call), "no padding at the end: older programs have it");

using Counts = std::span<const std::size_t>;

/// One for each rank; NULL: none.
Counts counts_of(const Communicator& comm, const std::size_t* counts) {
  return counts == nullptr ? Counts{} : Counts(counts, static_cast<std::size_t>(comm.size()));
}

ReduceOp op_of_call(const tutti_call& call, DataType type, const char* function) {
  if (call.op != TUTTI_PRE_MULTIPLIED_SUM) return op_of(call.op, function);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &need(static_cast<const std::byte*>(call.scalar), function, "call->scalar"),
              size_of(type));
  return ReduceOp::pre_multiplied_sum_of_bits(type, bits);
}

void refuse_range(const char* function, const char* field, int value, int end) {
  if (value >= 0 && value < end) return;
  refuse(std::string(function) + ": call->" + field + " is " + std::to_string(value) +
         ", but must be from 0 to " + std::to_string(end - 1));
}

/// Runs `body` on a communicator; it gets the name of the function for messages, too.
template <class Body>
tutti_result on(tutti_comm* comm, const char* function, Body&& body) noexcept {
  return guarded([&] { body(communicator(comm, function), function); });
}

Call call_of(const Communicator& comm, const tutti_call* given, const char* function) {
  const tutti_call from = known(given, kFirstCall, function, "call");
  refuse_range(function, "collective", from.collective, kCollectives);
  refuse_range(function, "label", from.label, 2048);
  refuse_range(function, "sends", from.sends, 2);
  refuse_range(function, "compressed", from.compressed, 2);
  refuse_range(function, "reserved", from.reserved, 1);
  Call call;
  call.collective = static_cast<Collective>(from.collective);
  call.in = from.in;
  call.out = from.out;
  call.count = from.count;
  call.type = type_of(from.type, function);
  if (is_reduction(call.collective)) call.op = op_of_call(from, call.type, function);
  call.root = from.root;
  call.peer = from.peer;
  call.sends = from.sends == 1;
  call.label = static_cast<std::uint16_t>(from.label);
  call.compressed = from.compressed == 1;
  call.left_out = from.left_out;
  if (from.left_out_times != 0) call.left_out_times = from.left_out_times;
  call.in_counts = counts_of(comm, from.in_counts);
  call.in_offsets = counts_of(comm, from.in_offsets);
  call.out_counts = counts_of(comm, from.out_counts);
  call.out_offsets = counts_of(comm, from.out_offsets);
  call.timeout = timeout_of(from.timeout_ns, function);
  return call;
}

}  // namespace
}  // namespace tutti::c

using namespace tutti;

tutti_result tutti_all_reduce(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                              int op) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.all_reduce(in, out, count, c::type_of(type, f), c::op_of(op, f));
  });
}

tutti_result tutti_all_gather(tutti_comm* comm, const void* in, void* out, size_t count, int type) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.all_gather(in, out, count, c::type_of(type, f));
  });
}

tutti_result tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                  int type, int op) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.reduce_scatter(in, out, count, c::type_of(type, f), c::op_of(op, f));
  });
}

tutti_result tutti_broadcast(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                             int root) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.broadcast(in, out, count, c::type_of(type, f), root);
  });
}

tutti_result tutti_reduce(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                          int op, int root) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.reduce(in, out, count, c::type_of(type, f), c::op_of(op, f), root);
  });
}

tutti_result tutti_gather(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                          int root) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.gather(in, out, count, c::type_of(type, f), root);
  });
}

tutti_result tutti_scatter(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                           int root) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.scatter(in, out, count, c::type_of(type, f), root);
  });
}

tutti_result tutti_all_to_all(tutti_comm* comm, const void* in, void* out, size_t count, int type) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.all_to_all(in, out, count, c::type_of(type, f));
  });
}

tutti_result tutti_all_gather_v(tutti_comm* comm, const void* in, void* out, const size_t* counts,
                                const size_t* offsets, int type) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    c::need(counts, f, "counts");
    on.all_gather_v(in, out, c::counts_of(on, counts), c::counts_of(on, offsets),
                    c::type_of(type, f));
  });
}

tutti_result tutti_reduce_scatter_v(tutti_comm* comm, const void* in, const size_t* counts,
                                    const size_t* offsets, void* out, int type, int op) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    c::need(counts, f, "counts");
    on.reduce_scatter_v(in, c::counts_of(on, counts), c::counts_of(on, offsets), out,
                        c::type_of(type, f), c::op_of(op, f));
  });
}

tutti_result tutti_all_to_all_v(tutti_comm* comm, const void* in, const size_t* in_counts,
                                const size_t* in_offsets, void* out, const size_t* out_counts,
                                const size_t* out_offsets, int type) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    c::need(in_counts, f, "in_counts");
    c::need(out_counts, f, "out_counts");
    on.all_to_all_v(in, c::counts_of(on, in_counts), c::counts_of(on, in_offsets), out,
                    c::counts_of(on, out_counts), c::counts_of(on, out_offsets),
                    c::type_of(type, f));
  });
}

tutti_result tutti_send(tutti_comm* comm, const void* in, size_t count, int type, int peer) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.send(in, count, c::type_of(type, f), peer);
  });
}

tutti_result tutti_recv(tutti_comm* comm, void* out, size_t count, int type, int peer) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.recv(out, count, c::type_of(type, f), peer);
  });
}

tutti_result tutti_barrier(tutti_comm* comm) {
  return c::on(comm, __func__, [&](Communicator& on, const char*) { on.barrier(); });
}

tutti_result tutti_run(tutti_comm* comm, const tutti_call* call) {
  return c::on(comm, __func__,
               [&](Communicator& on, const char* f) { on.run(c::call_of(on, call, f)); });
}

tutti_result tutti_run_on(tutti_comm* comm, const tutti_call* call, void* stream) {
  return c::on(comm, __func__,
               [&](Communicator& on, const char* f) { on.run(c::call_of(on, call, f), stream); });
}

tutti_result tutti_start(tutti_comm* comm, const tutti_call* call, tutti_future** future) {
  const char* const function = "tutti_start";
  return c::make_handle(future, function, "future", [&] {
    Communicator& on = c::communicator(comm, function);
    return on.start(c::call_of(on, call, function));
  });
}

tutti_result tutti_predict(tutti_comm* comm, const tutti_call* call, int64_t* nanoseconds) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    c::need(nanoseconds, f, "nanoseconds");
    *nanoseconds = on.predict(c::call_of(on, call, f)).count();
  });
}

tutti_result tutti_group_start(void) { return c::guarded(group_start); }
tutti_result tutti_group_end(void) { return c::guarded(group_end); }
tutti_result tutti_group_drop(void) { return c::guarded(group_drop); }

tutti_result tutti_future_wait(tutti_future* future) {
  return c::guarded([&] { c::need(future, "tutti_future_wait", "future").future.wait(); });
}

tutti_result tutti_future_wait_for(tutti_future* future, int64_t nanoseconds, int* done) {
  const char* const function = "tutti_future_wait_for";
  return c::guarded([&] {
    Future& of = c::need(future, function, "future").future;
    c::need(done, function, "done");
    const bool ready =
        nanoseconds == 0 ? of.ready() : of.wait_for(c::timeout_of(nanoseconds, function));
    *done = ready ? 1 : 0;
    const std::optional<Error> error = ready ? of.error() : std::nullopt;
    return error ? c::failed(*error) : TUTTI_OK;
  });
}

tutti_result tutti_future_on_ready(tutti_future* future, void (*callback)(void* user), void* user) {
  const char* const function = "tutti_future_on_ready";
  return c::guarded([&] {
    Future& of = c::need(future, function, "future").future;
    c::need(callback, function, "callback");
    of.on_ready([=] { callback(user); });
  });
}

tutti_result tutti_future_withdraw(tutti_comm* comm, tutti_future* future) {
  return c::on(comm, __func__, [&](Communicator& on, const char* f) {
    on.withdraw(c::need(future, f, "future").future);
  });
}

void tutti_future_free(tutti_future* future) { delete future; }

// Gloo in the measuring loop, over TCP: the CPU transport that it has, and what PyTorch's "gloo"
// backend runs on. On the loopback device, or the one that GLOO_SOCKET_IFNAME names. `tutti run`
// starts the ranks.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "bench/perf/buffer.h"
#include "core/error.h"
#include "laboratory/peers/loop.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

using Context = std::shared_ptr<gloo::Context>;

int integer_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw Error(ErrorCode::invalid_usage, std::string(name) + " is not set; use 'tutti run'");
  }
  return std::atoi(value);
}

// Gloo's options are objects that own buffers, so a call makes them anew, as its users do.
template <class Options, class T>
Options options(const Context& context, const Job& job, int in_blocks, int out_blocks) {
  Options made(context);
  made.setInput(reinterpret_cast<T*>(job.in), job.count * static_cast<std::size_t>(in_blocks));
  made.setOutput(reinterpret_cast<T*>(job.out), job.count * static_cast<std::size_t>(out_blocks));
  return made;
}

template <class T>
void add(void* sum, const void* a, const void* b, std::size_t count) {
  gloo::sum<T>(sum, a, b, count);
}

Call round_trip(const Context& context, const Job& job) {
  if (job.rank > 1) return [] {};
  const std::shared_ptr in = context->createUnboundBuffer(job.in, job.bytes());
  const std::shared_ptr out = context->createUnboundBuffer(job.out, job.bytes());
  return [=] {
    const int peer = 1 - job.rank;
    const auto send = [&] {
      in->send(peer, 0);
      in->waitSend();
    };
    if (job.rank == 0) send();
    out->recv(peer, 0);
    out->waitRecv();
    if (job.rank == 1) send();
  };
}

template <class T>
Call call_of(const Context& context, const Job& job) {
  const int n = job.ranks;
  switch (job.collective) {
    case Collective::all_reduce:
      return [=] {
        auto o = options<gloo::AllreduceOptions, T>(context, job, 1, 1);
        o.setReduceFunction(add<T>);
        gloo::allreduce(o);
      };
    case Collective::reduce:
      return [=] {
        auto o = options<gloo::ReduceOptions, T>(context, job, 1, 1);
        o.setReduceFunction(add<T>);
        o.setRoot(0);
        gloo::reduce(o);
      };
    case Collective::broadcast:
      return [=] {
        gloo::BroadcastOptions o(context);
        o.setOutput(reinterpret_cast<T*>(job.out), job.count);
        o.setRoot(0);
        gloo::broadcast(o);
      };
    case Collective::all_gather:
      return [=] {
        auto o = options<gloo::AllgatherOptions, T>(context, job, 1, n);
        gloo::allgather(o);
      };
    case Collective::all_to_all:
      return [=] {
        auto o = options<gloo::AlltoallOptions, T>(context, job, n, n);
        gloo::alltoall(o);
      };
    default:  // send_recv
      return round_trip(context, job);
  }
}

Call call_of(const Context& context, const Job& job) {
  switch (job.type) {
    case DataType::float64:
      return call_of<double>(context, job);
    case DataType::float32:
      return call_of<float>(context, job);
    default:  // float16; or bfloat16, which is moved alone
      return call_of<gloo::float16>(context, job);
  }
}

std::string why_unsupported(const Arguments& arguments) {
  if (arguments.collective == Collective::reduce_scatter) return "its reduce_scatter is in place";
  if (arguments.type == DataType::bfloat16 && is_reduction(arguments.collective)) {
    return "it does not add up bfloat16";
  }
  return "";
}

void measure(const Arguments& arguments) {
  const int rank = integer_variable("TUTTI_RANK");
  const int ranks = integer_variable("TUTTI_SIZE");
  if (const std::string reason = why_unsupported(arguments); !reason.empty()) {
    if (rank == 0) report_unsupported(arguments.folder, reason);
    return;
  }
  gloo::transport::tcp::attr where;
  if (const char* const interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    where.iface = interface;
  } else {
    where.hostname = "127.0.0.1";
  }
  auto device = gloo::transport::tcp::CreateDevice(where);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(arguments.folder);
  context->connectFullMesh(store, device);
  take_place(arguments, rank, ranks);

  const perf::Shape shape = largest_shape(arguments);
  const perf::Buffer in(shape.in * size_of(arguments.type), false);
  const perf::Buffer out(shape.out * size_of(arguments.type), false);
  run_loop(arguments, rank, in.data(), out.data(),
           [&](const Job& job) { return std::vector{call_of(context, job)}; });
}

}  // namespace
}  // namespace tutti::peers

int main(int argc, char** argv) {
  return tutti::peers::guarded(
      [&] { tutti::peers::measure(tutti::peers::parse_arguments(argc, argv)); });
}

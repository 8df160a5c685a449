// Tutti in the measuring loop.
#include "bench/perf/buffer.h"
#include "comm/communicator.h"
#include "laboratory/peers/loop.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

Call call_of(Communicator& comm, const Job& job) {
  switch (job.collective) {
    case Collective::all_reduce:
      return [&comm, job] { comm.all_reduce(job.in, job.out, job.count, job.type); };
    case Collective::all_gather:
      return [&comm, job] { comm.all_gather(job.in, job.out, job.count, job.type); };
    case Collective::reduce_scatter:
      return [&comm, job] { comm.reduce_scatter(job.in, job.out, job.count, job.type); };
    case Collective::broadcast:
      return [&comm, job] { comm.broadcast(job.in, job.out, job.count, job.type, 0); };
    case Collective::reduce:
      return
          [&comm, job] { comm.reduce(job.in, job.out, job.count, job.type, ReduceKind::sum, 0); };
    case Collective::all_to_all:
      return [&comm, job] { comm.all_to_all(job.in, job.out, job.count, job.type); };
    default:  // send_recv
      if (job.rank > 1) return [] {};
      return [&comm, job] {
        const int peer = 1 - job.rank;
        if (job.rank == 0) comm.send(job.in, job.count, job.type, peer);
        comm.recv(job.out, job.count, job.type, peer);
        if (job.rank == 1) comm.send(job.in, job.count, job.type, peer);
      };
  }
}

void measure(const Arguments& arguments) {
  Communicator comm = Communicator::from_environment();
  take_place(arguments, comm.rank(), comm.size());
  const perf::Shape shape = largest_shape(arguments);
  const perf::Buffer in(shape.in * size_of(arguments.type), arguments.window);
  const perf::Buffer out(shape.out * size_of(arguments.type), arguments.window);
  comm.barrier();  // connects: what carries the bytes is known then
  if (comm.rank() == 0) report_carrier(arguments.folder, comm.transports());
  run_loop(arguments, comm.rank(), in.data(), out.data(),
           [&](const Job& job) { return std::vector{call_of(comm, job)}; });
}

}  // namespace
}  // namespace tutti::peers

int main(int argc, char** argv) {
  return tutti::peers::guarded(
      [&] { tutti::peers::measure(tutti::peers::parse_arguments(argc, argv)); });
}

// An MPI in the measuring loop; built once against Open MPI and once against MPICH.
#include <mpi.h>

#include <string>

#include "bench/perf/buffer.h"
#include "laboratory/peers/loop.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

// MPI 3 has no 16-bit floats. They can be moved as any 16 bits, but not added up.
MPI_Datatype mpi_type(DataType type) {
  switch (size_of(type)) {
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_FLOAT;
    default:
      return MPI_DOUBLE;
  }
}

Call call_of(const Job& job) {
  const MPI_Datatype type = mpi_type(job.type);
  const int count = static_cast<int>(job.count);
  switch (job.collective) {
    case Collective::all_reduce:
      return [=] { MPI_Allreduce(job.in, job.out, count, type, MPI_SUM, MPI_COMM_WORLD); };
    case Collective::all_gather:
      return [=] { MPI_Allgather(job.in, count, type, job.out, count, type, MPI_COMM_WORLD); };
    case Collective::reduce_scatter:
      return
          [=] { MPI_Reduce_scatter_block(job.in, job.out, count, type, MPI_SUM, MPI_COMM_WORLD); };
    case Collective::broadcast:
      return [=] { MPI_Bcast(job.out, count, type, 0, MPI_COMM_WORLD); };
    case Collective::reduce:
      return [=] { MPI_Reduce(job.in, job.out, count, type, MPI_SUM, 0, MPI_COMM_WORLD); };
    case Collective::all_to_all:
      return [=] { MPI_Alltoall(job.in, count, type, job.out, count, type, MPI_COMM_WORLD); };
    default:  // send_recv
      if (job.rank > 1) return [] {};
      return [=] {
        const int peer = 1 - job.rank;
        if (job.rank == 0) MPI_Send(job.in, count, type, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(job.out, count, type, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (job.rank == 1) MPI_Send(job.in, count, type, peer, 0, MPI_COMM_WORLD);
      };
  }
}

void measure(const Arguments& arguments) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  take_place(arguments, rank, ranks);
  if (is_reduction(arguments.collective) && size_of(arguments.type) == 2) {
    if (rank == 0)
      report_unsupported(arguments.folder,
                         "MPI 3 does not add up " + std::string(name(arguments.type)));
  } else {
    const perf::Shape shape = largest_shape(arguments);
    const perf::Buffer in(shape.in * size_of(arguments.type), false);
    const perf::Buffer out(shape.out * size_of(arguments.type), false);
    run_loop(arguments, rank, in.data(), out.data(),
             [](const Job& job) { return std::vector{call_of(job)}; });
  }
  MPI_Finalize();
}

}  // namespace
}  // namespace tutti::peers

int main(int argc, char** argv) {
  return tutti::peers::guarded(
      [&] { tutti::peers::measure(tutti::peers::parse_arguments(argc, argv)); });
}

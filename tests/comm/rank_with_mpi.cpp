// A rank that uses MPI, too: the argument says whether MPI begins "before" Tutti or "after" it.
// Prints one line: "RANK SUM SUM", of Tutti and of MPI.
#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/named_calls.h"
#include "core/error.h"

int main(int argc, char** argv) {
  const bool before = argc > 1 && std::string(argv[1]) == "before";
  try {
    if (before) MPI_Init(&argc, &argv);
    std::vector<long> x{1};
    // Twice, with the beginning of MPI in between.
    for (int world = 0; world < 2; ++world) {
      auto made = tutti::Communicator::from_environment();
      x[0] += made.rank();
      made.all_reduce(x);
      if (world == 0 && !before) MPI_Init(&argc, &argv);
    }
    int rank = 0;
    long one = 1, sum = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    fmt::print("{} {} {}\n", rank, x[0], sum);
    std::fflush(stdout);
    MPI_Finalize();
    return 0;
  } catch (const tutti::Error& error) {
    fmt::print("error: {}\n", error.what());
    return 1;
  }
}

// mpi_exits HOW: a rank leaves in the middle; the others hear of it, and none waits for ever.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/bindings/mpi/cases/cases.h"

using namespace tutti::test;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const char* const how = argc > 1 ? argv[1] : "";
  const int last = tutti::test::size() - 1;
  int value = 0;
  if (std::strcmp(how, "abort") == 0) {
    if (tutti::test::rank() == last) MPI_Abort(MPI_COMM_WORLD, 44);
    MPI_Recv(&value, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (tutti::test::rank() == last) {
    _Exit(0);  // without MPI_Finalize
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int code = std::strcmp(how, "receive") == 0
                       ? MPI_Recv(&value, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
                       : MPI_Barrier(MPI_COMM_WORLD);
  if (class_of(code) == MPI_ERR_PROC_ABORTED) {
    std::printf("rank %d: %s\n", tutti::test::rank(), text_of(code).c_str());
    std::fflush(stdout);
    _Exit(0);
  }
  std::printf("no error of a lost rank: %d\n", code);
  return 1;
}

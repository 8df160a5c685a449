// Who this rank is.
#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {

int rank() {
  int r = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  return r;
}
int size() {
  int n = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

}  // namespace tutti::test

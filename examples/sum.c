// In C: the ranks add numbers; where a rank has died, the others go on without it.
//
//     cc sum.c -o sum $(pkg-config --cflags --libs tutti_c)
//     tutti run -n 4 ./sum
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti_c.h>

// Ends the program with the sentence of a failure.
static void check(tutti_result result) {
  if (result == TUTTI_OK) return;
  fprintf(stderr, "sum: %s: %s\n", tutti_result_name(result), tutti_error_message());
  exit(1);
}

int main(void) {
  enum { COUNT = 1 << 20 };
  tutti_comm* comm = NULL;
  check(tutti_comm_from_environment(NULL, &comm));
  const int rank = tutti_comm_rank(comm);

  void* memory = NULL;  // which the other ranks can address: nothing is copied in between
  check(tutti_allocate(2 * COUNT * sizeof(float), &memory));
  float* const x = memory;
  float* const total = x + COUNT;
  for (int i = 0; i < COUNT; ++i) x[i] = 1.0f + (float)rank;

  tutti_result result = tutti_all_reduce(comm, x, total, COUNT, TUTTI_FLOAT32, TUTTI_SUM);
  int* const lost = calloc((size_t)tutti_comm_size(comm), sizeof(int));
  for (size_t n = 0; result == TUTTI_PEER_LOST;) {
    lost[n++] = tutti_error_rank();
    tutti_comm* rest = NULL;
    result = tutti_comm_shrink(comm, lost, n, NULL, &rest);
    if (result != TUTTI_OK) continue;  // another one has died meanwhile
    check(tutti_comm_free(comm));
    comm = rest;
    n = 0;
    result = tutti_all_reduce(comm, x, total, COUNT, TUTTI_FLOAT32, TUTTI_SUM);
  }
  check(result);
  printf("rank %d of %d: the sum is %g\n", rank, tutti_comm_size(comm), total[COUNT - 1]);
  check(tutti_comm_free(comm));
  tutti_deallocate(memory);
  free(lost);
  return 0;
}

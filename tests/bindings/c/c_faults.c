/* Ranks that die, stand still, or abort: what the others get. Under `tutti run --keep-going -n 3`,
   with the name of the case as its argument. Each prints a line at the end; the last rank of
   "killed" does not get there. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "check.h"

static tutti_comm* comm;
static int rank, size;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The last rank dies in the middle. The others hear of it, with its rank, and go on without it. */
static void killed(void) {
  int32_t x = 1, y = 0;
  CHECK_OK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_INT32, TUTTI_SUM));
  if (rank == size - 1) raise(SIGKILL);
  const double start = now();
  tutti_result result = TUTTI_OK;
  while (result == TUTTI_OK && now() - start < 20) {
    result = tutti_all_reduce(comm, &x, &y, 1, TUTTI_INT32, TUTTI_SUM);
  }
  CHECK(result == TUTTI_PEER_LOST && tutti_error_rank() == size - 1);
  CHECK_RESULT(tutti_comm_error(comm), TUTTI_PEER_LOST);
  const int excluded[] = {size - 1};
  tutti_comm* rest = NULL;
  CHECK_OK(tutti_comm_shrink(comm, excluded, 1, NULL, &rest));
  CHECK_OK(tutti_all_reduce(rest, &x, &y, 1, TUTTI_INT32, TUTTI_SUM));
  CHECK(y == size - 1);
  CHECK_OK(tutti_comm_free(rest));
}

static void* abort_soon(void* user) {
  const struct timespec wait = {0, 100000000};
  nanosleep(&wait, NULL);
  CHECK_FAILS(tutti_comm_free(user), TUTTI_INVALID_USAGE, ""); /* rank 0 is in a call */
  CHECK_OK(tutti_comm_abort(user, "the second thread had enough"));
  return NULL;
}

/* Rank 0 waits for ranks that never come; its second thread ends that, on all ranks. */
static void aborted(void) {
  pthread_t thread;
  if (rank == 0) {
    CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
    CHECK_FAILS(tutti_barrier(comm), TUTTI_ABORTED, "the second thread had enough");
    CHECK(pthread_join(thread, NULL) == 0);
  } else {
    const double start = now();
    while (tutti_comm_error(comm) == TUTTI_OK && now() - start < 20) {
      const struct timespec wait = {0, 1000000};
      nanosleep(&wait, NULL);
    }
    CHECK_FAILS(tutti_barrier(comm), TUTTI_ABORTED, "the second thread had enough");
    CHECK(tutti_error_rank() == 0);
  }
}

/* The last rank is late; the others' call has a deadline. */
static void late(void) {
  if (rank == size - 1) {
    const double start = now();
    while (tutti_comm_error(comm) == TUTTI_OK && now() - start < 20) {
      const struct timespec wait = {0, 1000000};
      nanosleep(&wait, NULL);
    }
    CHECK_RESULT(tutti_barrier(comm), TUTTI_TIMED_OUT);
    return;
  }
  int32_t x = 1;
  const tutti_call call = {.size = sizeof call,
                           .collective = TUTTI_ALL_REDUCE,
                           .in = &x,
                           .out = &x,
                           .count = 1,
                           .type = TUTTI_INT32,
                           .timeout_ns = 200000000};
  const double start = now();
  CHECK_RESULT(tutti_run(comm, &call), TUTTI_TIMED_OUT);
  CHECK(now() - start < 10);
  CHECK(tutti_error_rank() == size - 1);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  CHECK_OK(tutti_comm_from_environment(NULL, &comm));
  rank = tutti_comm_rank(comm);
  size = tutti_comm_size(comm);
  if (strcmp(argv[1], "killed") == 0)
    killed();
  else if (strcmp(argv[1], "aborted") == 0)
    aborted();
  else if (strcmp(argv[1], "late") == 0)
    late();
  else
    return 2;
  CHECK_OK(tutti_comm_free(comm));
  printf("rank %d knows of it\n", rank);
  return 0;
}

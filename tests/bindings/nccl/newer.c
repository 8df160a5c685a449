/* What came after NCCL 2.28, between processes: windows with puts and signals, memory that goes and
 * comes back, and a communicator that grows. Run by `tutti run -n N`, with NCCL_COMM_ID. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/nccl/nccl.h"

#define CHECK(what)                                                              \
  do {                                                                           \
    if (!(what)) {                                                               \
      fprintf(stderr, "rank %d, line %d: %s is false\n", rank, __LINE__, #what); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)
#define NCCL(call)                                                                         \
  do {                                                                                     \
    const ncclResult_t r = (call);                                                         \
    if (r != ncclSuccess) {                                                                \
      fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, ncclGetErrorString(r), \
              ncclGetLastError(NULL));                                                     \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static int rank, size;
enum { kCount = 50000 };

static int32_t value(int of, int round, int i) { return 1000003 * (of + 1) + 7 * round + i; }

/* Each rank's data go to its place in the memory of the next one. */
static void ring_of_puts(ncclComm_t comm, int32_t* memory) {
  static int32_t from[kCount];
  ncclWindow_t window = NULL;
  NCCL(ncclCommWindowRegister(comm, memory, sizeof from * (size_t)size, &window,
                              NCCL_WIN_COLL_SYMMETRIC));
  CHECK(window != NULL);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < kCount; ++i) from[i] = value(rank, round, i);
    NCCL(ncclPutSignal(from, kCount, ncclInt32, next, window, sizeof from * (size_t)rank, 0, 0, 0,
                       comm, NULL));
    ncclWaitSignalDesc_t data = {1, before, 0, 0}, taken = {1, next, 1, 0};
    NCCL(ncclWaitSignal(1, &data, comm, NULL));
    for (int i = 0; i < kCount; ++i) CHECK(memory[before * kCount + i] == value(before, round, i));
    NCCL(ncclSignal(before, 1, 0, 0, comm, NULL));
    NCCL(ncclWaitSignal(1, &taken, comm, NULL));
  }
  NCCL(ncclCommWindowDeregister(comm, window));
}

static void pass_round(ncclComm_t comm) {
  static int32_t mine[kCount], theirs[kCount];
  for (int i = 0; i < kCount; ++i) mine[i] = value(rank, 0, i);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(mine, kCount, ncclInt32, (rank + 1) % size, comm, NULL));
  NCCL(ncclRecv(theirs, kCount, ncclInt32, (rank + size - 1) % size, comm, NULL));
  NCCL(ncclGroupEnd());
  for (int i = 0; i < kCount; ++i) CHECK(theirs[i] == value((rank + size - 1) % size, 0, i));
}

static void suspend(ncclComm_t comm) {
  uint64_t used = 0, suspended = 0;
  for (int round = 0; round < 3; ++round) {
    pass_round(comm);
    NCCL(ncclCommMemStats(comm, ncclStatGpuMemTotal, &used));
    CHECK(used > 0);
    NCCL(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    NCCL(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &suspended));
    CHECK(suspended == 1);
    CHECK(ncclAllReduce(&used, &used, 1, ncclUint64, ncclSum, comm, NULL) == ncclInvalidUsage);
    NCCL(ncclCommResume(comm));
  }
  pass_round(comm);
}

/* The last rank joins the others. `all` carries the id to it. */
static void grow(ncclComm_t all) {
  ncclComm_t members = NULL, grown = NULL;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  const int joins = rank == size - 1;
  NCCL(ncclCommSplit(all, joins ? NCCL_SPLIT_NOCOLOR : 0, rank, &members, NULL));
  if (rank == 0) NCCL(ncclCommGetUniqueId(members, &id));
  NCCL(ncclBcast(&id, sizeof id, ncclUint8, 0, all, NULL));
  NCCL(ncclCommGrow(members, size, joins || rank == 0 ? &id : NULL, joins ? rank : -1, &grown,
                    NULL));
  int its_rank = -1;
  NCCL(ncclCommUserRank(grown, &its_rank));
  CHECK(its_rank == rank);
  int64_t x = (int64_t)1 << rank;
  NCCL(ncclAllReduce(&x, &x, 1, ncclInt64, ncclSum, grown, NULL));
  CHECK(x == ((int64_t)1 << size) - 1);
  NCCL(ncclCommDestroy(grown));
  NCCL(ncclCommDestroy(members));
}

int main(void) {
  CHECK(getenv("TUTTI_RANK") != NULL && getenv("TUTTI_SIZE") != NULL);
  rank = atoi(getenv("TUTTI_RANK"));
  size = atoi(getenv("TUTTI_SIZE"));
  ncclUniqueId id;
  ncclComm_t comm;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  void* memory = NULL;
  NCCL(ncclMemAlloc(&memory, sizeof(int32_t) * kCount * (size_t)size));
  ring_of_puts(comm, memory);
  suspend(comm);
  if (size > 1) grow(comm);
  ring_of_puts(comm, memory);
  NCCL(ncclMemFree(memory));
  NCCL(ncclCommDestroy(comm));
  printf("rank %d is right\n", rank);
  return 0;
}

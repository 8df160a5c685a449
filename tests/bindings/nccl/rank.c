/* One rank of a job that uses NCCL, in C: every collective with exact expectations, groups, errors.
 *
 *   rank collectives     the checks; needs TUTTI_RANK and TUTTI_SIZE (`tutti run`) and NCCL_COMM_ID
 *   rank carried FILE    the same, but rank 0 hands on its id through a file, as programs do
 *                        that have MPI or a store; without NCCL_COMM_ID
 *   rank pairs           each process is two ranks of one thread
 *   rank survive VICTIM  rank VICTIM kills itself; the others must notice, and go on without it
 *
 * Exits with 0 when all is right; says what is not.
 */
#include <nccl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size;

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "rank %d, line %d: not so: %s\n", rank, __LINE__, #condition); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)
#define NCCL(call)                                                              \
  do {                                                                          \
    ncclResult_t result_ = (call);                                              \
    if (result_ != ncclSuccess) {                                               \
      fprintf(stderr, "rank %d, line %d: %s: %s (%s)\n", rank, __LINE__, #call, \
              ncclGetErrorString(result_), ncclGetLastError(NULL));             \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)
/* A call that must be refused with this result, and a sentence. */
#define REFUSED(expected, call)                 \
  do {                                          \
    CHECK((call) == (expected));                \
    CHECK(strlen(ncclGetLastError(NULL)) > 10); \
  } while (0)

enum { kMost = 70001 };
static int64_t in[16 * kMost], out[16 * kMost];

/* What element i of rank r's input is. */
static int64_t value(int r, size_t i) { return (int64_t)(r + 1) * 1000003 + (int64_t)i * 7; }
static int64_t sum(size_t i) {
  int64_t s = 0;
  for (int r = 0; r < size; ++r) s += value(r, i);
  return s;
}
static void fill(size_t count) {
  for (size_t i = 0; i < count; ++i) in[i] = value(rank, i);
  for (size_t i = 0; i < count; ++i) out[i] = -1;
}

static void collectives(ncclComm_t comm, size_t n) {
  const size_t all = n * (size_t)size;
  const int root = size - 1;

  fill(n);
  NCCL(ncclAllReduce(in, out, n, ncclInt64, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == sum(i));
  NCCL(ncclAllReduce(in, in, n, ncclInt64, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(in[i] == sum(i));

  fill(n);
  NCCL(ncclReduce(in, rank == root ? out : NULL, n, ncclInt64, ncclMax, root, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == (rank == root ? value(size - 1, i) : -1));
  NCCL(ncclReduce(in, out, n, ncclInt64, ncclSum, root, comm,
                  NULL)); /* not written but on the root */
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == (rank == root ? sum(i) : -1));

  fill(n);
  NCCL(ncclBroadcast(rank == root ? in : NULL, out, n, ncclInt64, root, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == value(root, i));
  NCCL(ncclBcast(in, n, ncclInt64, root, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(in[i] == value(root, i));

  fill(all);
  NCCL(ncclAllGather(in, out, n, ncclInt64, comm, NULL));
  for (size_t i = 0; i < all; ++i) CHECK(out[i] == value((int)(i / n), i % n));
  memcpy(out + (size_t)rank * n, in, n * sizeof *in);
  NCCL(ncclAllGather(out + (size_t)rank * n, out, n, ncclInt64, comm, NULL));
  for (size_t i = 0; i < all; ++i) CHECK(out[i] == value((int)(i / n), i % n));

  fill(all);
  NCCL(ncclReduceScatter(in, out, n, ncclInt64, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == sum((size_t)rank * n + i));
  NCCL(ncclReduceScatter(in, in + (size_t)rank * n, n, ncclInt64, ncclSum, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(in[(size_t)rank * n + i] == sum((size_t)rank * n + i));

  fill(all);
  NCCL(ncclAlltoAll(in, out, n, ncclInt64, comm, NULL));
  for (size_t i = 0; i < all; ++i) {
    CHECK(out[i] == value((int)(i / n), (size_t)rank * n + i % n));
  }
  NCCL(ncclAlltoAll(in, in, n, ncclInt64, comm, NULL)); /* more than NCCL promises */
  for (size_t i = 0; i < all; ++i) CHECK(in[i] == out[i]);

  fill(all);
  NCCL(ncclGather(in, rank == root ? out : NULL, n, ncclInt64, root, comm, NULL));
  for (size_t i = 0; i < all; ++i) {
    CHECK(out[i] == (rank == root ? value((int)(i / n), i % n) : -1));
  }
  fill(all);
  NCCL(ncclScatter(rank == root ? in : NULL, out, n, ncclInt64, root, comm, NULL));
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == value(root, (size_t)rank * n + i));
}

static void messages(ncclComm_t comm, size_t n) {
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  fill(n);
  /* Receive before send, all at once; a nested group changes nothing. */
  NCCL(ncclGroupStart());
  NCCL(ncclRecv(out, n, ncclInt64, previous, comm, NULL));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, n, ncclInt64, next, comm, NULL));
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == value(previous, i));

  fill(n);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(in, n, ncclInt64, rank, comm, NULL));
  NCCL(ncclRecv(out, n, ncclInt64, rank, comm, NULL));
  NCCL(ncclGroupEnd());
  for (size_t i = 0; i < n; ++i) CHECK(out[i] == in[i]);

  /* Everyone to everyone, two messages each, which keep their order; and a collective beside them.
   */
  fill(2 * n * (size_t)size);
  int64_t ranks = 1;
  NCCL(ncclGroupStart());
  for (int p = 0; p < size; ++p) {
    for (size_t k = 0; k < 2; ++k) {
      const size_t at = (2 * (size_t)p + k) * n;
      NCCL(ncclSend(in + at, n, ncclInt64, p, comm, NULL));
      NCCL(ncclRecv(out + at, n, ncclInt64, p, comm, NULL));
    }
  }
  NCCL(ncclAllReduce(&ranks, &ranks, 1, ncclInt64, ncclSum, comm, NULL));
  NCCL(ncclGroupEnd());
  CHECK(ranks == size);
  for (int p = 0; p < size; ++p) {
    for (size_t i = 0; i < 2 * n; ++i) {
      CHECK(out[2 * (size_t)p * n + i] == value(p, 2 * (size_t)rank * n + i));
    }
  }
  /* An empty message is one, too: it is matched. */
  NCCL(ncclGroupStart());
  NCCL(ncclSend(NULL, 0, ncclInt8, next, comm, NULL));
  NCCL(ncclRecv(NULL, 0, ncclInt8, previous, comm, NULL));
  NCCL(ncclGroupEnd());
  NCCL(ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, comm, NULL));
}

/* Ranks may differ in whether they use a group, here with buffers that lie in windows and do not.
 */
static void grouped_or_not(ncclComm_t comm) {
  const size_t n = kMost;
  int64_t* window = NULL;
  NCCL(ncclMemAlloc((void**)&window, n * sizeof *window));
  CHECK(window != NULL);
  for (int round = 0; round < 4; ++round) {
    int64_t* to = round % 2 == 0 ? window : out;
    fill(n);
    if (rank % 2 == 0) NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(in, to, n, ncclInt64, ncclSum, comm, NULL));
    NCCL(ncclBroadcast(to, in, n, ncclInt64, 0, comm, NULL));
    if (rank % 2 == 0) NCCL(ncclGroupEnd());
    for (size_t i = 0; i < n; ++i) CHECK(to[i] == sum(i) && in[i] == sum(i));
  }
  NCCL(ncclMemFree(window));
}

static void operators(ncclComm_t comm) {
  double x[3], y[3] = {0, 0, 0}, scalar = rank + 1;
  for (int i = 0; i < 3; ++i) x[i] = i + rank;
  NCCL(ncclAllReduce(x, y, 3, ncclFloat64, ncclAvg, comm, NULL));
  for (int i = 0; i < 3; ++i) {
    double want = 0;
    for (int r = 0; r < size; ++r) want += (i + r) / (double)size;
    CHECK(y[i] - want < 1e-12 && want - y[i] < 1e-12);
  }
  ncclRedOp_t immediate, later;
  NCCL(ncclRedOpCreatePreMulSum(&immediate, &scalar, ncclFloat64, ncclScalarHostImmediate, comm));
  NCCL(ncclRedOpCreatePreMulSum(&later, &scalar, ncclFloat64, ncclScalarDevice, comm));
  CHECK(immediate >= ncclNumOps && later >= ncclNumOps && immediate != later);
  double want_immediate = 0, want_later = 0;
  for (int r = 0; r < size; ++r) {
    want_immediate += (r + 1) * (double)r;
    want_later += 10 * (r + 1) * (double)r;
  }
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(x, y, 1, ncclFloat64, immediate, comm, NULL));
  NCCL(ncclAllReduce(x, y + 1, 1, ncclFloat64, later, comm, NULL));
  NCCL(ncclRedOpDestroy(immediate, comm)); /* the group has a copy */
  NCCL(ncclRedOpDestroy(later, comm));
  scalar *= 10; /* read when the group runs */
  NCCL(ncclGroupEnd());
  CHECK(y[0] == want_immediate && y[1] == want_later);
  REFUSED(ncclInvalidArgument, ncclAllReduce(x, y, 1, ncclFloat64, later, comm, NULL));
}

static void splits(ncclComm_t comm) {
  ncclComm_t half = NULL, none = comm;
  int n = 0, r = -1;
  NCCL(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
  NCCL(ncclCommCount(half, &n));
  NCCL(ncclCommUserRank(half, &r));
  CHECK(n == (size + 1 - rank % 2) / 2);
  CHECK(r == n - 1 - rank / 2); /* by descending key */
  int64_t ones = 1;
  NCCL(ncclAllReduce(&ones, &ones, 1, ncclInt64, ncclSum, half, NULL));
  CHECK(ones == n);
  /* Two communicators that reach into other processes in one group, in another order on each rank.
   */
  int64_t whole = 1;
  ones = 1;
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    const int first = i == rank % 2;
    int64_t* x = first ? &ones : &whole;
    NCCL(ncclAllReduce(x, x, 1, ncclInt64, ncclSum, first ? half : comm, NULL));
  }
  NCCL(ncclGroupEnd());
  CHECK(ones == n && whole == size);
  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommSplit(comm, rank == 0 ? 5 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
  CHECK((none != NULL) == (rank == 0));
  NCCL(ncclCommDestroy(none));
  if (size > 1) {
    int excluded[] = {0};
    ncclComm_t rest = NULL;
    if (rank == 0) {
      REFUSED(ncclInvalidArgument,
              ncclCommShrink(comm, excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
    } else {
      NCCL(ncclCommShrink(comm, excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
      ones = 1;
      NCCL(ncclAllReduce(&ones, &ones, 1, ncclInt64, ncclSum, rest, NULL));
      CHECK(ones == size - 1);
      NCCL(ncclCommDestroy(rest));
    }
  }
}

static void pairs(ncclUniqueId id) {
  const int ranks = 2 * size;
  ncclComm_t comms[2];
  NCCL(ncclGroupStart());
  for (int k = 0; k < 2; ++k) NCCL(ncclCommInitRank(&comms[k], ranks, id, 2 * rank + k));
  NCCL(ncclGroupEnd());
  for (size_t n = 1; n <= kMost; n = n * 16 + 1) {
    int64_t* to[2] = {out, out + n};
    for (int round = 0; round < 2; ++round) {
      fill(n);
      NCCL(ncclGroupStart());
      for (int k = 0; k < 2; ++k) {
        const int me = 2 * rank + k;
        NCCL(ncclAllReduce(in, to[k], n, ncclInt64, ncclSum, comms[k], NULL));
        NCCL(ncclSend(in, n, ncclInt64, (me + 2) % ranks, comms[k], NULL));
        NCCL(ncclRecv(to[k] + 2 * n, n, ncclInt64, (me + ranks - 2) % ranks, comms[k], NULL));
      }
      NCCL(ncclGroupEnd());
      for (size_t i = 0; i < n; ++i) {
        CHECK(out[i] == 2 * sum(i) && out[n + i] == 2 * sum(i));
        CHECK(out[2 * n + i] == value((rank + size - 1) % size, i));
        CHECK(out[3 * n + i] == out[2 * n + i]);
      }
    }
  }
  for (int k = 0; k < 2; ++k) NCCL(ncclCommDestroy(comms[k]));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void survive(ncclComm_t comm, int victim) {
  int64_t one = 1, n = 0;
  for (int i = 0; i < 200; ++i) {
    NCCL(ncclAllReduce(&one, &n, 1, ncclInt64, ncclSum, comm, NULL));
    CHECK(n == size);
    if (i == 100 && rank == victim) raise(SIGKILL);
    if (i == 100) break;
  }
  const double begin = now();
  ncclResult_t result = ncclSuccess, async = ncclSuccess;
  while (result == ncclSuccess) {
    result = ncclAllReduce(&one, &n, 1, ncclInt64, ncclSum, comm, NULL);
  }
  CHECK(now() - begin < 1.0);
  CHECK(result == ncclRemoteError);
  NCCL(ncclCommGetAsyncError(comm, &async));
  CHECK(async == ncclRemoteError);
  char sentence[32];
  snprintf(sentence, sizeof sentence, "rank %d (pid", victim);
  CHECK(strstr(ncclGetLastError(comm), sentence) != NULL);
  ncclComm_t rest = NULL;
  NCCL(ncclCommShrink(comm, &victim, 1, &rest, NULL, NCCL_SHRINK_ABORT));
  NCCL(ncclAllReduce(&one, &n, 1, ncclInt64, ncclSum, rest, NULL));
  CHECK(n == size - 1);
  NCCL(ncclCommAbort(comm));
  NCCL(ncclCommDestroy(rest));
}

/* The id that rank 0 has made. */
static ncclUniqueId carried(const char* path) {
  ncclUniqueId id;
  char begun[4096];
  CHECK(snprintf(begun, sizeof begun, "%s.begun", path) < (int)sizeof begun);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    FILE* file = fopen(begun, "wb");
    CHECK(file != NULL && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    CHECK(rename(begun, path) == 0);
    return id;
  }
  FILE* file = NULL;
  for (const double end = now() + 20; file == NULL && now() < end;) {
    file = fopen(path, "rb");
    if (file == NULL) nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
  }
  CHECK(file != NULL && fread(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
  return id;
}

int main(int argc, char** argv) {
  CHECK(argc > 1 && getenv("TUTTI_RANK") != NULL && getenv("TUTTI_SIZE") != NULL);
  rank = atoi(getenv("TUTTI_RANK"));
  size = atoi(getenv("TUTTI_SIZE"));
  CHECK(size <= 16);
  int version = 0;
  NCCL(ncclGetVersion(&version));
  CHECK(version == 23203);
  ncclUniqueId id;
  if (strcmp(argv[1], "carried") == 0) {
    CHECK(argc > 2);
    id = carried(argv[2]);
  } else {
    NCCL(ncclGetUniqueId(&id)); /* the same on all ranks, through NCCL_COMM_ID */
  }
  if (strcmp(argv[1], "pairs") == 0) {
    pairs(id);
    printf("ranks %d and %d are right\n", 2 * rank, 2 * rank + 1);
    return 0;
  }
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  int n = 0, r = -1;
  NCCL(ncclCommCount(comm, &n));
  NCCL(ncclCommUserRank(comm, &r));
  CHECK(n == size && r == rank);
  if (strcmp(argv[1], "survive") == 0) {
    survive(comm, atoi(argv[2]));
    printf("rank %d survived\n", rank);
    return 0;
  }
  const size_t counts[] = {1, 17, 1000, kMost / 8};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    collectives(comm, counts[i]);
    messages(comm, counts[i]);
  }
  grouped_or_not(comm);
  operators(comm);
  splits(comm);
  NCCL(ncclCommFinalize(comm));
  REFUSED(ncclInvalidUsage, ncclAllReduce(in, out, 1, ncclInt64, ncclSum, comm, NULL));
  NCCL(ncclCommDestroy(comm));
  if (strcmp(argv[1], "carried") != 0) { /* the same name again */
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&comm, size, id, rank));
    NCCL(ncclCommDestroy(comm));
  }
  printf("rank %d is right\n", rank);
  return 0;
}

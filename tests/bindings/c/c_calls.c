/* Every call of the C interface that moves data, on any number of ranks: what each rank gets, to
   the bit. Under `tutti run -n N`. */
#include "check.h"

enum { COUNT = 37 };
static tutti_comm* comm;
static int rank, size;

/* Element i that rank r gives to rank `to`: all differ, and sums of them are exact. */
static int32_t given(int r, int to, int i) { return 1000 * r + 100 * to + i + 1; }

static void fill(int32_t* block, int r, int to, int count) {
  for (int i = 0; i < count; ++i) block[i] = given(r, to, i);
}

static int is(const int32_t* block, int r, int to, int count) {
  for (int i = 0; i < count; ++i) {
    if (block[i] != given(r, to, i)) return 0;
  }
  return 1;
}

static int32_t sum(int to, int i) {
  int32_t total = 0;
  for (int r = 0; r < size; ++r) total += given(r, to, i);
  return total;
}

static int is_sum(const int32_t* block, int to, int count) {
  for (int i = 0; i < count; ++i) {
    if (block[i] != sum(to, i)) return 0;
  }
  return 1;
}

static int32_t* new_block(int count) {
  int32_t* const block = calloc((size_t)count + 1, sizeof(int32_t));
  CHECK(block != NULL);
  return block;
}

static void collectives(void) {
  const int all = COUNT * size;
  int32_t* in = new_block(all);
  int32_t* out = new_block(all);

  fill(in, rank, 0, COUNT);
  CHECK_OK(tutti_all_reduce(comm, in, out, COUNT, TUTTI_INT32, TUTTI_SUM));
  CHECK(is_sum(out, 0, COUNT) && is(in, rank, 0, COUNT) && out[COUNT] == 0);
  CHECK_OK(tutti_all_reduce(comm, in, in, COUNT, TUTTI_INT32, TUTTI_MAX)); /* in place */
  CHECK(is(in, size - 1, 0, COUNT));

  fill(in, rank, 0, COUNT);
  CHECK_OK(tutti_all_gather(comm, in, out, COUNT, TUTTI_INT32));
  for (int r = 0; r < size; ++r) CHECK(is(out + r * COUNT, r, 0, COUNT));
  memset(out, 0, (size_t)all * sizeof(int32_t));
  fill(out + rank * COUNT, rank, 0, COUNT);
  CHECK_OK(tutti_all_gather(comm, out + rank * COUNT, out, COUNT, TUTTI_INT32));
  for (int r = 0; r < size; ++r) CHECK(is(out + r * COUNT, r, 0, COUNT));

  for (int to = 0; to < size; ++to) fill(in + to * COUNT, rank, to, COUNT);
  CHECK_OK(tutti_reduce_scatter(comm, in, out, COUNT, TUTTI_INT32, TUTTI_SUM));
  CHECK(is_sum(out, rank, COUNT));
  CHECK_OK(tutti_all_to_all(comm, in, out, COUNT, TUTTI_INT32));
  for (int r = 0; r < size; ++r) CHECK(is(out + r * COUNT, r, rank, COUNT));
  CHECK_OK(tutti_reduce_scatter(comm, in, in + rank * COUNT, COUNT, TUTTI_INT32, TUTTI_SUM));
  CHECK(is_sum(in + rank * COUNT, rank, COUNT));

  for (int root = 0; root < size; ++root) {
    const int here = rank == root;
    memset(out, 0, (size_t)all * sizeof(int32_t));
    fill(in, rank, root, COUNT);
    CHECK_OK(tutti_broadcast(comm, here ? in : NULL, out, COUNT, TUTTI_INT32, root));
    CHECK(is(out, root, root, COUNT));
    CHECK_OK(tutti_reduce(comm, in, here ? out : NULL, COUNT, TUTTI_INT32, TUTTI_SUM, root));
    CHECK(here ? is_sum(out, root, COUNT) : is(out, root, root, COUNT));
    CHECK_OK(tutti_gather(comm, in, here ? out : NULL, COUNT, TUTTI_INT32, root));
    for (int r = 0; here && r < size; ++r) CHECK(is(out + r * COUNT, r, root, COUNT));
    for (int to = 0; to < size; ++to) fill(in + to * COUNT, rank, to, COUNT);
    CHECK_OK(tutti_scatter(comm, here ? in : NULL, out, COUNT, TUTTI_INT32, root));
    CHECK(is(out, root, rank, COUNT));
  }
  CHECK_OK(tutti_barrier(comm));
  CHECK_OK(tutti_all_reduce(comm, NULL, NULL, 0, TUTTI_INT32, TUTTI_SUM));
  free(in);
  free(out);
}

/* Rank r has r + 3 elements for, or of, everybody; with offsets, a gap of two before each block. */
static void v_variants(void) {
  size_t* counts = calloc((size_t)size, sizeof(size_t));
  size_t* offsets = calloc((size_t)size, sizeof(size_t));
  size_t* mine = calloc((size_t)size, sizeof(size_t));
  CHECK(counts && offsets && mine);
  int total = 0;
  for (int r = 0; r < size; ++r) {
    counts[r] = (size_t)r + 3;
    mine[r] = (size_t)rank + 3;
    offsets[r] = (size_t)(total + 2 * (r + 1));
    total += r + 3;
  }
  const int room = total + 2 * size + size * (rank + 3);
  int32_t* in = new_block(room);
  int32_t* out = new_block(room);

  for (int with = 0; with < 2; ++with) {
    const size_t* const at = with ? offsets : NULL;
    memset(out, 0, (size_t)room * sizeof(int32_t));
    fill(in, rank, 0, rank + 3);
    CHECK_OK(tutti_all_gather_v(comm, in, out, counts, at, TUTTI_INT32));
    for (int r = 0, packed = 0; r < size; packed += r + 3, ++r) {
      CHECK(is(out + (with ? (int)offsets[r] : packed), r, 0, r + 3));
    }
    CHECK(!with || (out[0] == 0 && out[1] == 0));

    for (int to = 0, packed = 0; to < size; packed += to + 3, ++to) {
      fill(in + (with ? (int)offsets[to] : packed), rank, to, to + 3);
    }
    CHECK_OK(tutti_reduce_scatter_v(comm, in, counts, at, out, TUTTI_INT32, TUTTI_SUM));
    CHECK(is_sum(out, rank, rank + 3));
    /* From rank r come rank + 3 elements, packed. */
    CHECK_OK(tutti_all_to_all_v(comm, in, counts, at, out, mine, NULL, TUTTI_INT32));
    for (int r = 0; r < size; ++r) CHECK(is(out + r * (rank + 3), r, rank, rank + 3));
  }
  free(in);
  free(out);
  free(counts);
  free(offsets);
  free(mine);
}

static void operators(void) {
  const double x = rank + 1;
  double out = 0;
  double product = 1;
  for (int r = 0; r < size; ++r) product *= r + 1;
  CHECK_OK(tutti_all_reduce(comm, &x, &out, 1, TUTTI_FLOAT64, TUTTI_PROD));
  CHECK(out == product);
  CHECK_OK(tutti_all_reduce(comm, &x, &out, 1, TUTTI_FLOAT64, TUTTI_MIN));
  CHECK(out == 1);
  const double exact = size * x; /* divided by `size` again, for each of them */
  CHECK_OK(tutti_all_reduce(comm, &exact, &out, 1, TUTTI_FLOAT64, TUTTI_AVG));
  CHECK(out == size * (size + 1) / 2.0);
  /* The factor of rank r is 2 to the r. */
  const double factor = (double)(1 << rank);
  const tutti_call call = {.size = sizeof call,
                           .collective = TUTTI_ALL_REDUCE,
                           .in = &x,
                           .out = &out,
                           .count = 1,
                           .type = TUTTI_FLOAT64,
                           .op = TUTTI_PRE_MULTIPLIED_SUM,
                           .scalar = &factor};
  CHECK_OK(tutti_run(comm, &call));
  double expected = 0;
  for (int r = 0; r < size; ++r) expected += (r + 1) * (double)(1 << r);
  CHECK(out == expected);
  int64_t nanoseconds = 0;
  CHECK_OK(tutti_predict(comm, &call, &nanoseconds));
  CHECK(nanoseconds >= 0 && nanoseconds < 1000000000);

  /* 16 bits: ones, twice over the ranks. */
  uint16_t ones[5] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80}, sums[5] = {0};
  CHECK_OK(tutti_all_reduce(comm, ones, sums, 5, TUTTI_BFLOAT16, TUTTI_SUM));
  const float number = (float)size;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  for (int i = 0; i < 5; ++i) CHECK(sums[i] == bits >> 16);
}

static void messages(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int32_t out[COUNT], in[COUNT];
  fill(out, rank, right, COUNT);
  CHECK_OK(tutti_group_start()); /* crossing, and to itself where there is one rank */
  CHECK_OK(tutti_send(comm, out, COUNT, TUTTI_INT32, right));
  CHECK_OK(tutti_recv(comm, in, COUNT, TUTTI_INT32, left));
  CHECK_OK(tutti_group_end());
  CHECK(is(in, left, rank, COUNT));
  CHECK_OK(tutti_group_start());
  CHECK_OK(tutti_barrier(comm));
  CHECK_OK(tutti_group_drop());
}

static void count_up(void* user) { ++*(int*)user; }

static void started(void) {
  int32_t in[3][COUNT], out[3][COUNT];
  tutti_future* futures[3] = {NULL, NULL, NULL};
  int called = 0;
  for (int i = 0; i < 3; ++i) {
    fill(in[i], rank, i, COUNT);
    const tutti_call call = {.size = sizeof call,
                             .collective = TUTTI_ALL_REDUCE,
                             .in = in[i],
                             .out = out[i],
                             .count = COUNT,
                             .type = TUTTI_INT32};
    CHECK_OK(tutti_start(comm, &call, &futures[i]));
  }
  CHECK_OK(tutti_future_on_ready(futures[2], count_up, &called));
  for (int i = 2; i >= 0; --i) {
    CHECK_OK(tutti_future_wait(futures[i]));
    int done = 0;
    CHECK_OK(tutti_future_wait_for(futures[i], 0, &done));
    CHECK(done == 1 && is_sum(out[i], i, COUNT));
    tutti_future_free(futures[i]);
  }
  CHECK_OK(tutti_barrier(comm)); /* a blocking call comes after the callbacks */
  CHECK(called == 1);

  /* A recv that nobody answers is not over, and is withdrawn. */
  if (size > 1) {
    const tutti_call call = {.size = sizeof call,
                             .collective = TUTTI_SEND_RECV,
                             .out = out[0],
                             .count = COUNT,
                             .type = TUTTI_INT32,
                             .peer = (rank + 1) % size};
    int done = 1;
    CHECK_OK(tutti_start(comm, &call, &futures[0]));
    CHECK_OK(tutti_future_wait_for(futures[0], 1000000, &done));
    CHECK(done == 0);
    CHECK_OK(tutti_future_withdraw(comm, futures[0]));
    CHECK_RESULT(tutti_future_wait(futures[0]), TUTTI_ABORTED);
    tutti_future_free(futures[0]);
    CHECK_OK(tutti_barrier(comm));
  }
}

static void memory_and_windows(void) {
  void* memory = NULL;
  CHECK_OK(tutti_allocate(COUNT * sizeof(int32_t), &memory));
  int32_t* const numbers = memory;
  CHECK(numbers[COUNT - 1] == 0);
  fill(numbers, rank, 4, COUNT);
  CHECK_OK(tutti_all_reduce(comm, numbers, numbers, COUNT, TUTTI_INT32, TUTTI_SUM));
  CHECK(is_sum(numbers, 4, COUNT));
  tutti_deallocate(memory);

  enum { PAGES = 4, PAGE = 4096 };
  char* const own = aligned_alloc(PAGE, PAGES * PAGE);
  CHECK(own != NULL);
  memset(own, 7, PAGES * PAGE);
  void* first = NULL;
  size_t registered = 0;
  CHECK_OK(tutti_register_memory(own + 1, PAGES * PAGE - 1, &first, &registered));
  CHECK(first == own + PAGE && registered == (PAGES - 1) * PAGE && own[PAGE] == 7);
  tutti_unregister_memory(first);
  free(own);

  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  tutti_window* window = NULL;
  CHECK_OK(tutti_window_open(comm, NULL, 64 + (size_t)rank, &window));
  size_t bytes = 0;
  CHECK_OK(tutti_window_bytes(window, right, &bytes));
  CHECK(bytes == 64 + (size_t)right);
  const int32_t word = given(rank, right, 5);
  CHECK_OK(tutti_window_put(window, right, 8, &word, sizeof word));
  CHECK_OK(tutti_window_put_signal(window, right, 16, &word, sizeof word, 3));
  CHECK_OK(tutti_window_wait_signal(window, left, 1, 3));
  const char* const data = tutti_window_data(window);
  int32_t got[2];
  memcpy(&got[0], data + 8, sizeof got[0]);
  memcpy(&got[1], data + 16, sizeof got[1]);
  CHECK(got[0] == given(left, rank, 5) && got[1] == got[0]);
  CHECK_OK(tutti_window_signal(window, right, 0));
  CHECK_OK(tutti_window_wait_signal(window, left, 1, 0));
  void* mapped = NULL;
  CHECK_OK(tutti_window_map(window, rank, &mapped));
  CHECK(mapped == data);
  CHECK_FAILS(tutti_window_put(window, right, 1000, &word, sizeof word), TUTTI_INVALID_ARGUMENT,
              "1000");
  CHECK_OK(tutti_window_close(window));
  tutti_window_free(window);
}

static void made_of_another(void) {
  tutti_comm* part = NULL;
  CHECK_OK(tutti_comm_split(comm, rank % 2, -rank, NULL, &part));
  CHECK(part != NULL);
  const int members = (size + 1 - rank % 2) / 2;
  CHECK(tutti_comm_size(part) == members);
  CHECK(tutti_comm_rank(part) == members - 1 - rank / 2); /* the other way round, by the keys */
  int32_t x = rank, expected = 0, out = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  CHECK_OK(tutti_all_reduce(part, &x, &out, 1, TUTTI_INT32, TUTTI_SUM));
  CHECK(out == expected);
  CHECK_OK(tutti_comm_free(part));
  part = comm;
  CHECK_OK(tutti_comm_split(comm, rank == 0 ? 0 : -1, 0, NULL, &part));
  CHECK((part != NULL) == (rank == 0));
  CHECK_OK(tutti_comm_free(part));

  if (size > 1) {
    tutti_options options;
    CHECK_OK(tutti_comm_options(comm, &options, sizeof options));
    options.timeout_ns = 5000000000;
    if (rank > 0) {
      const int excluded[] = {0};
      tutti_comm* rest = NULL;
      CHECK_OK(tutti_comm_shrink(comm, excluded, 1, &options, &rest));
      CHECK(tutti_comm_size(rest) == size - 1 && tutti_comm_rank(rest) == rank - 1);
      CHECK_OK(tutti_comm_options(rest, &options, sizeof options));
      CHECK(options.timeout_ns == 5000000000);
      CHECK_OK(tutti_barrier(rest));
      CHECK_OK(tutti_comm_free(rest));
    }
    CHECK_OK(tutti_barrier(comm));
  }

  /* The same ranks, the other way round, by their handles. */
  enum { LONGEST = 4096 };
  char* const texts = calloc((size_t)size, LONGEST);
  const char** const handles = calloc((size_t)size, sizeof(char*));
  CHECK(texts && handles);
  size_t length = 0;
  CHECK_OK(tutti_comm_handle(comm, NULL, 0, &length));
  CHECK(length > 0 && length < LONGEST);
  char* const own = texts + (size - 1 - rank) * LONGEST;
  CHECK_FAILS(tutti_comm_handle(comm, own, length, NULL), TUTTI_INVALID_ARGUMENT, "size is");
  CHECK_OK(tutti_comm_handle(comm, own, LONGEST, &length));
  CHECK(strlen(own) == length);
  CHECK_OK(tutti_all_reduce(comm, texts, texts, (size_t)size * LONGEST, TUTTI_UINT8, TUTTI_MAX));
  for (int r = 0; r < size; ++r) handles[r] = texts + r * LONGEST;
  tutti_comm* next = NULL;
  CHECK_OK(tutti_comm_reconfigure(comm, handles, (size_t)size, 1, NULL, &next));
  CHECK(tutti_comm_rank(next) == size - 1 - rank && tutti_comm_size(next) == size);
  CHECK_RESULT(tutti_barrier(comm), TUTTI_ABORTED);
  CHECK_OK(tutti_comm_free(comm));
  comm = next;
  rank = tutti_comm_rank(comm);
  free(texts);
  free(handles);
}

int main(void) {
  CHECK_OK(tutti_comm_from_environment(NULL, &comm));
  rank = tutti_comm_rank(comm);
  size = tutti_comm_size(comm);
  collectives();
  v_variants();
  operators();
  messages();
  started();
  memory_and_windows();
  CHECK_OK(tutti_comm_release_memory(comm));
  made_of_another();
  collectives(); /* on the new communicator */
  char transports[256];
  CHECK_OK(tutti_comm_transports(comm, transports, sizeof transports, NULL));
  CHECK_OK(tutti_comm_free(comm));
  if (rank == 0) printf("all calls are right: %d ranks, %s\n", size, transports);
  return 0;
}

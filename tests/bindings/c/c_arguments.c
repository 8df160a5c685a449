/* What is refused, and how: wrong arguments, NULL handles, structs of another size. One process;
   its ranks are threads. */
#include <pthread.h>

#include "check.h"

/* The binary interface of TUTTI_C_1: what programs were compiled with stays where it is. */
_Static_assert(sizeof(tutti_options) == 112 && offsetof(tutti_options, algorithm) == 32 &&
                   offsetof(tutti_options, quorum) == 88 && offsetof(tutti_options, gpu) == 104,
               "tutti_options");
_Static_assert(sizeof(tutti_call) == 128 && offsetof(tutti_call, in) == 32 &&
                   offsetof(tutti_call, scalar) == 56 && offsetof(tutti_call, timeout_ns) == 96 &&
                   offsetof(tutti_call, left_out_times) == 120,
               "tutti_call");
_Static_assert(sizeof(tutti_unique_id) == 128, "tutti_unique_id");

static void null_handles(void) {
  int32_t x = 0;
  size_t counts[1] = {1};
  tutti_call call = {.size = sizeof call, .collective = TUTTI_BARRIER};
  tutti_comm* made = NULL;
  tutti_future* future = NULL;
  tutti_window* window = NULL;
  int64_t ns = 0;
  int done = 0;
  void* memory = NULL;
  const tutti_result argument = TUTTI_INVALID_ARGUMENT;
  CHECK_FAILS(tutti_all_reduce(NULL, &x, &x, 1, TUTTI_INT32, TUTTI_SUM), argument,
              "tutti_all_reduce: the argument comm is NULL");
  CHECK(tutti_error_rank() == -1);
  CHECK_RESULT(tutti_all_gather(NULL, &x, &x, 1, TUTTI_INT32), argument);
  CHECK_RESULT(tutti_reduce_scatter(NULL, &x, &x, 1, TUTTI_INT32, TUTTI_SUM), argument);
  CHECK_RESULT(tutti_broadcast(NULL, &x, &x, 1, TUTTI_INT32, 0), argument);
  CHECK_RESULT(tutti_reduce(NULL, &x, &x, 1, TUTTI_INT32, TUTTI_SUM, 0), argument);
  CHECK_RESULT(tutti_gather(NULL, &x, &x, 1, TUTTI_INT32, 0), argument);
  CHECK_RESULT(tutti_scatter(NULL, &x, &x, 1, TUTTI_INT32, 0), argument);
  CHECK_RESULT(tutti_all_to_all(NULL, &x, &x, 1, TUTTI_INT32), argument);
  CHECK_RESULT(tutti_all_gather_v(NULL, &x, &x, counts, NULL, TUTTI_INT32), argument);
  CHECK_RESULT(tutti_reduce_scatter_v(NULL, &x, counts, NULL, &x, TUTTI_INT32, TUTTI_SUM),
               argument);
  CHECK_RESULT(tutti_all_to_all_v(NULL, &x, counts, NULL, &x, counts, NULL, TUTTI_INT32), argument);
  CHECK_RESULT(tutti_send(NULL, &x, 1, TUTTI_INT32, 0), argument);
  CHECK_RESULT(tutti_recv(NULL, &x, 1, TUTTI_INT32, 0), argument);
  CHECK_RESULT(tutti_barrier(NULL), argument);
  CHECK_RESULT(tutti_run(NULL, &call), argument);
  CHECK_RESULT(tutti_run_on(NULL, &call, NULL), argument);
  CHECK_RESULT(tutti_start(NULL, &call, &future), argument);
  CHECK_RESULT(tutti_predict(NULL, &call, &ns), argument);
  CHECK_RESULT(tutti_future_wait(NULL), argument);
  CHECK_RESULT(tutti_future_wait_for(NULL, 0, &done), argument);
  CHECK_RESULT(tutti_future_on_ready(NULL, NULL, NULL), argument);
  CHECK_RESULT(tutti_future_withdraw(NULL, NULL), argument);
  CHECK_RESULT(tutti_comm_split(NULL, 0, 0, NULL, &made), argument);
  CHECK_RESULT(tutti_comm_shrink(NULL, NULL, 0, NULL, &made), argument);
  CHECK_RESULT(tutti_comm_grow(NULL, NULL, 1, NULL, &made), argument);
  CHECK_RESULT(tutti_comm_reconfigure(NULL, NULL, 0, 1, NULL, &made), argument);
  CHECK_RESULT(tutti_comm_handle(NULL, NULL, 0, counts), argument);
  CHECK_RESULT(tutti_comm_transports(NULL, NULL, 0, counts), argument);
  CHECK_RESULT(tutti_comm_error(NULL), argument);
  CHECK_RESULT(tutti_comm_abort(NULL, "why"), argument);
  CHECK_RESULT(tutti_comm_release_memory(NULL), argument);
  CHECK_RESULT(tutti_comm_use_plan(NULL, ""), argument);
  CHECK_RESULT(tutti_comm_options(NULL, NULL, 0), argument);
  CHECK_RESULT(tutti_options_init(NULL, sizeof(tutti_options)), argument);
  CHECK_RESULT(tutti_comm_alone(NULL, NULL), argument);
  CHECK_RESULT(tutti_comm_from_environment(NULL, NULL), argument);
  CHECK_RESULT(tutti_comm_create(NULL, 0, 1, NULL, &made), argument);
  CHECK_RESULT(tutti_comm_create_local(1, NULL, NULL), argument);
  CHECK_RESULT(tutti_unique_id_make(NULL, NULL), argument);
  CHECK_RESULT(tutti_unique_id_make_among_hosts(NULL), argument);
  CHECK_RESULT(tutti_unique_id_to_text(NULL, NULL), argument);
  CHECK_RESULT(tutti_unique_id_from_text(NULL, NULL), argument);
  CHECK_RESULT(tutti_allocate(1, NULL), argument);
  CHECK_RESULT(tutti_register_memory(&x, 1, NULL, NULL), argument);
  CHECK_RESULT(tutti_window_open(NULL, NULL, 1, &window), argument);
  CHECK_RESULT(tutti_window_bytes(NULL, 0, counts), argument);
  CHECK_RESULT(tutti_window_map(NULL, 0, &memory), argument);
  CHECK_RESULT(tutti_window_put(NULL, 0, 0, &x, 1), argument);
  CHECK_RESULT(tutti_window_put_signal(NULL, 0, 0, &x, 1, 0), argument);
  CHECK_RESULT(tutti_window_signal(NULL, 0, 0), argument);
  CHECK_RESULT(tutti_window_wait_signal(NULL, 0, 1, 0), argument);
  CHECK_RESULT(tutti_window_close(NULL), argument);
  CHECK(tutti_window_data(NULL) == NULL && made == NULL && future == NULL && window == NULL);
  CHECK(tutti_comm_rank(NULL) == -1 && tutti_comm_size(NULL) == -1);
  CHECK_OK(tutti_comm_free(NULL));
  tutti_future_free(NULL);
  tutti_window_free(NULL);
  tutti_deallocate(NULL);
  tutti_unregister_memory(NULL);
}

static void wrong_numbers(tutti_comm* comm) {
  int32_t x = 3, y = 0;
  const tutti_result argument = TUTTI_INVALID_ARGUMENT;
  /* 263 and 256 are float32 and sum, if only their low bytes were read. */
  CHECK_FAILS(tutti_all_reduce(comm, &x, &y, 1, 263, TUTTI_SUM), argument, "type is 263");
  CHECK_FAILS(tutti_all_reduce(comm, &x, &y, 1, -1, TUTTI_SUM), argument, "type is -1");
  CHECK_FAILS(tutti_all_reduce(comm, &x, &y, 1, TUTTI_INT32, 256), argument, "op is 256");
  CHECK_FAILS(tutti_all_reduce(comm, &x, &y, 1, TUTTI_INT32, TUTTI_PRE_MULTIPLIED_SUM), argument,
              "tutti_run");
  CHECK_FAILS(tutti_broadcast(comm, &x, &y, 1, TUTTI_INT32, 7), argument, "7");
  CHECK_FAILS(tutti_all_reduce(comm, NULL, &y, 1, TUTTI_INT32, TUTTI_SUM), argument, "null");
  CHECK_FAILS(tutti_all_gather_v(comm, &x, &y, NULL, NULL, TUTTI_INT32), argument, "counts");
  CHECK_FAILS(tutti_comm_use_plan(comm, "no plan"), argument, "plan");
  CHECK_FAILS(tutti_comm_use_plan(comm, NULL), argument, "NULL");

  const tutti_call good = {.size = sizeof good,
                           .collective = TUTTI_ALL_REDUCE,
                           .in = &x,
                           .out = &y,
                           .count = 1,
                           .type = TUTTI_INT32};
  tutti_future* future = NULL;
  int64_t ns = 0;
  CHECK_OK(tutti_run(comm, &good));
  CHECK(y == 3);
  tutti_call call = good;
  call.size = 0;
  CHECK_FAILS(tutti_run(comm, &call), argument, "call->size is 0");
  call.size = sizeof call + 8;
  CHECK_FAILS(tutti_start(comm, &call, &future), argument, "newer tutti_c.h");
  call = good, call.collective = 13;
  CHECK_FAILS(tutti_run(comm, &call), argument, "collective is 13");
  call = good, call.label = 2048;
  CHECK_FAILS(tutti_predict(comm, &call, &ns), argument, "label is 2048");
  call = good, call.timeout_ns = -1;
  CHECK_FAILS(tutti_run(comm, &call), argument, "timeout_ns is -1");
  call = good, call.reserved = 1;
  CHECK_FAILS(tutti_run(comm, &call), argument, "reserved is 1");
  call = good, call.op = TUTTI_PRE_MULTIPLIED_SUM;
  CHECK_FAILS(tutti_run(comm, &call), argument, "call->scalar is NULL");
  call = good, call.compressed = 1;
  CHECK_FAILS(tutti_run(comm, &call), argument, "int32");
  CHECK_FAILS(tutti_run(comm, NULL), argument, "call is NULL");
  CHECK(future == NULL);

  tutti_options options;
  CHECK_FAILS(tutti_options_init(&options, 40), argument, "size is 40");
  CHECK_FAILS(tutti_options_init(&options, 4000), argument, "newer");
  CHECK_OK(tutti_options_init(&options, sizeof options));
  CHECK(options.size == sizeof options && options.algorithm == NULL && options.gpu == -1);
  tutti_comm* made = NULL;
  options.invariant = 2;
  CHECK_FAILS(tutti_comm_alone(&options, &made), argument, "invariant is 2");
  options.invariant = 0;
  options.timeout_ns = -5;
  CHECK_FAILS(tutti_comm_alone(&options, &made), argument, "timeout");
  options.timeout_ns = 0;
  options.reserved = 1;
  CHECK_FAILS(tutti_comm_alone(&options, &made), argument, "reserved is 1, but must be 0");
  options.reserved = 0;
  options.algorithm = "none such";
  CHECK_FAILS(tutti_comm_alone(&options, &made), argument, "none such");
  options.size = 1;
  CHECK_FAILS(tutti_comm_alone(&options, &made), argument, "options->size is 1");
  CHECK(made == NULL);

  tutti_unique_id id;
  char text[TUTTI_UNIQUE_ID_TEXT];
  CHECK_FAILS(tutti_unique_id_from_text("12", &id), argument, "256");
  CHECK_OK(tutti_unique_id_make("", &id));
  CHECK_OK(tutti_unique_id_to_text(&id, text));
  CHECK(strlen(text) == TUTTI_UNIQUE_ID_TEXT - 1);
  tutti_unique_id again;
  CHECK_OK(tutti_unique_id_from_text(text, &again));
  CHECK(memcmp(&id, &again, sizeof id) == 0);
  CHECK_FAILS(tutti_comm_create(&id, 3, 2, NULL, &made), argument, "3");
  CHECK_OK(tutti_comm_create(&id, 0, 1, NULL, &made));
  CHECK_OK(tutti_comm_free(made));
  CHECK_RESULT(tutti_group_end(), TUTTI_INVALID_USAGE);
  CHECK(tutti_size_of(TUTTI_BFLOAT16) == 2 && tutti_size_of(-1) == 0 && tutti_size_of(256) == 0);
  CHECK(strcmp(tutti_result_name(TUTTI_PEER_LOST), "peer_lost") == 0);
  CHECK(strcmp(tutti_result_name(77), "unknown") == 0);
  CHECK(tutti_version_number() > 0 && strchr(tutti_version(), '.') != NULL);
}

/* A started call that has failed says so by its future, to any thread; the text is each thread's.
 */
static void* other_thread(void* user) {
  CHECK(strcmp(tutti_error_message(), "") == 0);
  int done = 0;
  CHECK_FAILS(tutti_future_wait_for(user, 0, &done), TUTTI_MISMATCH, "all_reduce");
  CHECK(done == 1 && tutti_error_rank() >= 0);
  return NULL;
}

struct rank_thread {
  tutti_comm* comm;
  int rank;
  int32_t x, y;
};

static void* sum_in_thread(void* user) {
  struct rank_thread* const self = user;
  self->x = self->rank + 1;
  CHECK_OK(tutti_all_reduce(self->comm, &self->x, &self->y, 1, TUTTI_INT32, TUTTI_SUM));
  return NULL;
}

/* A newcomer joins a communicator of one rank. */
static void* join(void* id) {
  tutti_comm* comm = NULL;
  int32_t x = 20, y = 0;
  CHECK_OK(tutti_comm_create(id, 1, 2, NULL, &comm));
  CHECK_OK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_INT32, TUTTI_SUM));
  CHECK(y == 23);
  CHECK_OK(tutti_comm_free(comm));
  return NULL;
}

static void grow(void) {
  tutti_unique_id id;
  tutti_comm *comm = NULL, *larger = NULL;
  pthread_t newcomer;
  int32_t x = 3, y = 0;
  CHECK_OK(tutti_comm_alone(NULL, &comm));
  CHECK_OK(tutti_unique_id_make("", &id));
  CHECK(pthread_create(&newcomer, NULL, join, &id) == 0);
  CHECK_OK(tutti_comm_grow(comm, &id, 2, NULL, &larger));
  CHECK(tutti_comm_rank(larger) == 0 && tutti_comm_size(larger) == 2);
  CHECK_OK(tutti_all_reduce(larger, &x, &y, 1, TUTTI_INT32, TUTTI_SUM));
  CHECK(y == 23);
  CHECK(pthread_join(newcomer, NULL) == 0);
  CHECK_OK(tutti_comm_free(larger));
  CHECK_OK(tutti_comm_free(comm));
}

static void threads(void) {
  enum { RANKS = 3 };
  tutti_comm* comms[RANKS];
  pthread_t ids[RANKS];
  struct rank_thread ranks[RANKS];
  CHECK_OK(tutti_comm_create_local(RANKS, NULL, comms));
  for (int r = 0; r < RANKS; ++r) {
    CHECK(tutti_comm_rank(comms[r]) == r && tutti_comm_size(comms[r]) == RANKS);
    ranks[r] = (struct rank_thread){comms[r], r, 0, 0};
    CHECK(pthread_create(&ids[r], NULL, sum_in_thread, &ranks[r]) == 0);
  }
  for (int r = 0; r < RANKS; ++r) {
    CHECK(pthread_join(ids[r], NULL) == 0);
    CHECK(ranks[r].y == 6);
  }

  int32_t in[2] = {0, 0}, out[2] = {0, 0};
  tutti_future* futures[RANKS];
  for (int r = 0; r < RANKS; ++r) { /* rank 1 has another count */
    const tutti_call call = {.size = sizeof call,
                             .collective = TUTTI_ALL_REDUCE,
                             .in = in,
                             .out = out,
                             .count = r == 1 ? 1 : 2,
                             .type = TUTTI_INT32};
    CHECK_OK(tutti_start(comms[r], &call, &futures[r]));
  }
  CHECK_RESULT(tutti_future_wait(futures[0]), TUTTI_MISMATCH);
  CHECK(tutti_error_rank() == 1);
  CHECK(pthread_create(&ids[0], NULL, other_thread, futures[0]) == 0);
  CHECK(pthread_join(ids[0], NULL) == 0);
  CHECK_RESULT(tutti_comm_error(comms[2]), TUTTI_MISMATCH);
  for (int r = 0; r < RANKS; ++r) tutti_future_free(futures[r]);
  for (int r = 0; r < RANKS; ++r) CHECK_OK(tutti_comm_free(comms[r]));
}

int main(void) {
  CHECK(strcmp(tutti_error_message(), "") == 0 && tutti_error_rank() == -1);
  null_handles();
  tutti_comm* comm = NULL;
  CHECK_OK(tutti_comm_alone(NULL, &comm));
  wrong_numbers(comm);
  CHECK_OK(tutti_comm_free(comm));
  grow();
  threads();
  puts("wrong arguments are refused");
  return 0;
}

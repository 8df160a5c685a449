// Tutti's interface in C: the ranks of a job, the collectives between them, messages, started
// calls, windows. libtutti_c.so.1; docs/c.md has a program and what other languages need.
//
//     tutti_comm* comm = NULL;
//     if (tutti_comm_from_environment(NULL, &comm) != TUTTI_OK) die(tutti_error_message());
//     tutti_all_reduce(comm, numbers, numbers, count, TUTTI_FLOAT32, TUTTI_SUM);
//     tutti_comm_free(comm);
//
// Results: a function that can fail returns a tutti_result. For each failure the library keeps a
// sentence (tutti_error_message) and the rank that caused it (tutti_error_rank), for the thread
// that made the call. What a function writes through a pointer is written on success only, unless
// it says otherwise. A NULL where a handle or an address is needed is TUTTI_INVALID_ARGUMENT; a
// handle that was freed is not detected.
//
// Calls: counts are in elements. in == out means in place; all_gather and gather are in place where
// in == out + rank (or root) * count, reduce_scatter and scatter where out == in + rank (or root) *
// count; all_to_all has no such form, and any other overlap is an error. A call with count 0 is
// legal, and moves nothing. All ranks make the collectives of a communicator in one order. Memory
// is the host's, but for tutti_run_on().
//
// Threads: any thread may call any communicator at any time; the calls of one communicator take
// turns. No thread may use a handle while another frees it. A child of fork() cannot use its
// parent's handles.
//
// Waiting: a blocking call waits for late ranks without limit, unless tutti_options.timeout_ns is
// set. A rank that dies fails the call on all others within a second. After a failure every call of
// the communicator fails with the first failure; tutti_comm_shrink() goes on with who is left.
//
// The binary interface: structs with a field `size` begin with their size, by which the library
// knows which fields the program has. A later version adds functions, fields at their ends and
// values, and changes nothing that is here.
#ifndef TUTTI_C_H
#define TUTTI_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Results and errors ------------------------------------------------------------------------------

typedef int tutti_result;
enum {
  TUTTI_OK = 0,
  TUTTI_INVALID_ARGUMENT = 1,  // this call's arguments are wrong; nothing was started
  TUTTI_INVALID_USAGE = 2,     // right arguments at the wrong time
  TUTTI_MISMATCH = 3,          // ranks called different operations, counts, types, roots or orders
  TUTTI_PEER_LOST = 4,         // another rank died or left
  TUTTI_TIMED_OUT = 5,         // the deadline that the program set has passed
  TUTTI_ABORTED = 6,           // tutti_comm_abort() was called, here or on another rank
  TUTTI_UNPROVEN_PLAN = 7,     // a plan from a user that the verifier does not accept
  TUTTI_SYSTEM = 8,            // the operating system refused something
  TUTTI_INTERNAL = 9           // a bug in Tutti
};

/// "ok", "peer_lost", ...; "unknown" for another number. Never NULL.
const char* tutti_result_name(tutti_result result);
/// Of this thread's newest call that failed: what happened, on which rank, where, what to do. "" if
/// none has. A call that succeeds leaves it. Valid until the thread's next failure, or its end.
const char* tutti_error_message(void);
/// The rank that caused this thread's newest failure; -1: none, or it is not known.
int tutti_error_rank(void);

/// The version of the library, as text ("0.1.0") and as a number: 10000 * major + 100 * minor +
/// patch.
const char* tutti_version(void);
int tutti_version_number(void);

// What calls are made of --------------------------------------------------------------------------

enum {  // types; the numbers are NCCL's
  TUTTI_INT8 = 0,
  TUTTI_UINT8 = 1,
  TUTTI_INT32 = 2,
  TUTTI_UINT32 = 3,
  TUTTI_INT64 = 4,
  TUTTI_UINT64 = 5,
  TUTTI_FLOAT16 = 6,
  TUTTI_FLOAT32 = 7,
  TUTTI_FLOAT64 = 8,
  TUTTI_BFLOAT16 = 9,
  TUTTI_FLOAT8_E4M3 = 10,
  TUTTI_FLOAT8_E5M2 = 11
};
enum {  // operators
  TUTTI_SUM = 0,
  TUTTI_PROD = 1,
  TUTTI_MAX = 2,
  TUTTI_MIN = 3,
  TUTTI_AVG = 4,
  TUTTI_PRE_MULTIPLIED_SUM = 5  // tutti_call.scalar is the factor of this rank
};
enum {  // tutti_call.collective
  TUTTI_ALL_REDUCE = 0,
  TUTTI_ALL_GATHER = 1,
  TUTTI_REDUCE_SCATTER = 2,
  TUTTI_BROADCAST = 3,
  TUTTI_REDUCE = 4,
  TUTTI_GATHER = 5,
  TUTTI_SCATTER = 6,
  TUTTI_ALL_TO_ALL = 7,
  TUTTI_ALL_GATHER_V = 8,
  TUTTI_REDUCE_SCATTER_V = 9,
  TUTTI_ALL_TO_ALL_V = 10,
  TUTTI_SEND_RECV = 11,
  TUTTI_BARRIER = 12
};

/// Bytes of one element; 0 for a number that is no type.
size_t tutti_size_of(int type);

// Communicators -----------------------------------------------------------------------------------

typedef struct tutti_comm tutti_comm;
typedef struct tutti_future tutti_future;
typedef struct tutti_window tutti_window;

/// How a communicator behaves: comm/communicator.h says it of each field (Options). Fill it with
/// tutti_options_init() or tutti_comm_options(), then change fields. The library copies the texts
/// during the call that is given the options.
typedef struct tutti_options {
  size_t size;
  int64_t timeout_ns;             // of one operation; 0: none
  int64_t report_after_ns;        // report a wait this long once; 0: never
  int64_t rendezvous_timeout_ns;  // for all ranks to appear
  // Texts; NULL: as the environment says.
  const char* algorithm;       // "": chosen
  const char* cuda_protocols;  // "": all
  const char* host_id;         // ranks with different ones do not share memory. "": the system's
  const char* interfaces;      // network interfaces. "": the one that leads to the meeting place
  size_t slots;                // per link; 0: chosen
  size_t slot_bytes;           // 0: chosen
  size_t cuda_blocks;          // 0: chosen
  // Flags: 0 or 1.
  int quorum;      // tutti_comm_shrink() needs a majority
  int encrypt;     // what goes to other hosts
  int round_once;  // sums of 16- and 8-bit floats
  int invariant;   // bits that depend on the inputs and the order of the ranks alone
  int gpu;         // CUDA's number; -1: that of the thread which makes the communicator
  int reserved;    // 0
} tutti_options;

/// `options` becomes what the environment says (docs/settings.md). `size`: sizeof(tutti_options).
tutti_result tutti_options_init(tutti_options* options, size_t size);
/// The same with what `comm` was made with. The texts are valid as long as `comm`.
tutti_result tutti_comm_options(const tutti_comm* comm, tutti_options* options, size_t size);

/// What brings the ranks of tutti_comm_create() together. A process that knows it may join: carry
/// it to them privately.
typedef struct tutti_unique_id {
  unsigned char bytes[128];
} tutti_unique_id;
enum { TUTTI_UNIQUE_ID_TEXT = 257 };  // bytes of its text, with the zero at its end

/// A fresh id. This process must live until all ranks have met. `address`: of this host, by which
/// other hosts reach it; "": for ranks of this host alone; NULL: as TUTTI_ADDRESS says.
tutti_result tutti_unique_id_make(const char* address, tutti_unique_id* id);
/// The same for ranks of several hosts, with the address of this one that they would use.
tutti_result tutti_unique_id_make_among_hosts(tutti_unique_id* id);
/// `text`: TUTTI_UNIQUE_ID_TEXT bytes, of which the last is zero.
tutti_result tutti_unique_id_to_text(const tutti_unique_id* id, char* text);
tutti_result tutti_unique_id_from_text(const char* text, tutti_unique_id* id);

// Each of these makes a communicator, which tutti_comm_free() ends. `options` may be NULL: what the
// environment says, or for one that is made of another, what that one has. They block until all
// ranks are there, at most tutti_options.rendezvous_timeout_ns.

/// Rank and size from the launcher (`tutti run`, torchrun, Open MPI, MPICH, Slurm); without one,
/// one rank alone.
tutti_result tutti_comm_from_environment(const tutti_options* options, tutti_comm** comm);
/// All `size` ranks call it with the same id. They may be processes, or threads of one.
tutti_result tutti_comm_create(const tutti_unique_id* id, int rank, int size,
                               const tutti_options* options, tutti_comm** comm);
/// `size` ranks in this process, for that many threads; `comms` has room for them.
tutti_result tutti_comm_create_local(int size, const tutti_options* options, tutti_comm** comms);
/// One rank, which others may meet later (tutti_comm_reconfigure).
tutti_result tutti_comm_alone(const tutti_options* options, tutti_comm** comm);
/// Ranks with equal `color`, ordered by `key`, then by rank; a negative color: *part becomes NULL.
/// Collective.
tutti_result tutti_comm_split(tutti_comm* comm, int color, int key, const tutti_options* options,
                              tutti_comm** part);
/// The ranks that are not among the `count` ranks `excluded`, which may be dead; only they call it,
/// with one list. `comm` may have failed. Where another rank is lost meanwhile, all get
/// TUTTI_PEER_LOST with its rank, and call it again without that one (docs/failures.md).
tutti_result tutti_comm_shrink(tutti_comm* comm, const int* excluded, size_t count,
                               const tutti_options* options, tutti_comm** rest);
/// The ranks of `comm`, and newcomers, which call tutti_comm_create() with the same id and size and
/// have the ranks behind. `comm` goes on beside the new one.
tutti_result tutti_comm_grow(tutti_comm* comm, const tutti_unique_id* id, int size,
                             const tutti_options* options, tutti_comm** larger);
/// The ranks that `handles` (tutti_comm_handle) name form a communicator, in this order. Each calls
/// it on a communicator of its own, with one list and one positive `number` that none of them has
/// used before. On success `comm` has ended, and is only good for tutti_comm_free(); on failure it
/// is as it was (docs/membership.md).
tutti_result tutti_comm_reconfigure(tutti_comm* comm, const char* const* handles, size_t count,
                                    uint64_t number, const tutti_options* options,
                                    tutti_comm** next);
/// All that others need to meet this rank: a line of text, a secret. Writes at most `size` bytes
/// with the zero at the end. *length, unless that is NULL: the length of the whole, also where it
/// does not fit, which is TUTTI_INVALID_ARGUMENT. `text` NULL and `size` 0: the length alone.
tutti_result tutti_comm_handle(const tutti_comm* comm, char* text, size_t size, size_t* length);
/// The transports between the ranks, for people. Writes as tutti_comm_handle().
tutti_result tutti_comm_transports(const tutti_comm* comm, char* text, size_t size, size_t* length);

/// -1: `comm` is NULL, or has ended.
int tutti_comm_rank(const tutti_comm* comm);
int tutti_comm_size(const tutti_comm* comm);
/// TUTTI_OK, or the failure that the next call would return, of any rank: also of one that died
/// unnoticed. Waits for nobody.
tutti_result tutti_comm_error(const tutti_comm* comm);
/// Makes every rank's present and future calls fail, with `reason` in their message (may be NULL).
tutti_result tutti_comm_abort(tutti_comm* comm, const char* reason);
/// Leaves, and frees the handle. Waits for this rank's started calls, for no other rank. While
/// another thread is in a blocking call of it: TUTTI_INVALID_USAGE, and nothing has happened. NULL
/// is ignored.
tutti_result tutti_comm_free(tutti_comm* comm);
/// Gives memory back until the next calls need it. Collective.
tutti_result tutti_comm_release_memory(tutti_comm* comm);
/// Runs this plan (docs/plans.md) for its collective from now on. All ranks call it.
tutti_result tutti_comm_use_plan(tutti_comm* comm, const char* plan);

// Collectives and messages; each returns when this rank's part is over. named_calls.h describes
// them.

tutti_result tutti_all_reduce(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                              int op);
/// `out` has `count` elements of each rank.
tutti_result tutti_all_gather(tutti_comm* comm, const void* in, void* out, size_t count, int type);
/// `in` has `count` elements for each rank.
tutti_result tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                  int type, int op);
/// `in` is read on the root alone.
tutti_result tutti_broadcast(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                             int root);
/// `out` is written on the root alone, and may be NULL elsewhere.
tutti_result tutti_reduce(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                          int op, int root);
tutti_result tutti_gather(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                          int root);
/// `in` is read on the root alone, and may be NULL elsewhere.
tutti_result tutti_scatter(tutti_comm* comm, const void* in, void* out, size_t count, int type,
                           int root);
tutti_result tutti_all_to_all(tutti_comm* comm, const void* in, void* out, size_t count, int type);

// counts[r] elements from offsets[r] on are those of, or for, rank r; both have tutti_comm_size()
// entries. Offsets NULL: packed.

tutti_result tutti_all_gather_v(tutti_comm* comm, const void* in, void* out, const size_t* counts,
                                const size_t* offsets, int type);
tutti_result tutti_reduce_scatter_v(tutti_comm* comm, const void* in, const size_t* counts,
                                    const size_t* offsets, void* out, int type, int op);
tutti_result tutti_all_to_all_v(tutti_comm* comm, const void* in, const size_t* in_counts,
                                const size_t* in_offsets, void* out, const size_t* out_counts,
                                const size_t* out_offsets, int type);

/// Messages of a pair of ranks match in order. One to the own rank needs a group.
tutti_result tutti_send(tutti_comm* comm, const void* in, size_t count, int type, int peer);
tutti_result tutti_recv(tutti_comm* comm, void* out, size_t count, int type, int peer);
tutti_result tutti_barrier(tutti_comm* comm);

/// Any of these calls, as data. Set all fields that are not used to 0, as an initialiser does:
///     tutti_call call = {.size = sizeof call, .collective = TUTTI_ALL_REDUCE, .in = x, ...};
typedef struct tutti_call {
  size_t size;  // sizeof(tutti_call)
  int collective;
  int type;
  int op;
  int root;
  int peer;   // TUTTI_SEND_RECV: the other rank
  int sends;  // TUTTI_SEND_RECV: 1: a send, from `in`; 0: a recv, to `out`
  const void* in;
  void* out;
  size_t count;
  const void* scalar;  // TUTTI_PRE_MULTIPLIED_SUM: one element of `type`, read during the call
  const size_t* in_counts;
  const size_t* in_offsets;
  const size_t* out_counts;
  const size_t* out_offsets;
  int64_t timeout_ns;    // of this call; 0: that of the communicator; INT64_MAX: none
  int label;             // less than 2048; calls with different labels do not match
  int compressed;        // 1: 8 bits for an element on links (docs/low-precision.md)
  float* left_out;       // of a compressed all_reduce (comm/call.h), or NULL
  float left_out_times;  // 0: 1
  int reserved;          // 0
} tutti_call;

tutti_result tutti_run(tutti_comm* comm, const tutti_call* call);
/// On memory of a GPU: puts the call on `stream`, a cudaStream_t, and returns.
tutti_result tutti_run_on(tutti_comm* comm, const tutti_call* call, void* stream);
/// Starts the call and returns; its memory belongs to it until it is over. Within a communicator
/// collectives keep the order of the calls, and so do the messages of two ranks.
tutti_result tutti_start(tutti_comm* comm, const tutti_call* call, tutti_future** future);
/// How long it is predicted to take. Runs nothing.
tutti_result tutti_predict(tutti_comm* comm, const tutti_call* call, int64_t* nanoseconds);

/// The calls of this thread between start and end run together, when the group ends: crossing sends
/// and receives cannot deadlock. Groups nest. Dropping runs none of the calls.
tutti_result tutti_group_start(void);
tutti_result tutti_group_end(void);
tutti_result tutti_group_drop(void);

// Started calls -----------------------------------------------------------------------------------

/// Blocks until the call is over; returns its result. As often as you like.
tutti_result tutti_future_wait(tutti_future* future);
/// Waits `nanoseconds` at most; 0 does not wait. *done: whether the call is over; if it is, returns
/// its result.
tutti_result tutti_future_wait_for(tutti_future* future, int64_t nanoseconds, int* done);
/// Runs `callback(user)` when the call is over, on the thread that runs started calls, or at once
/// if it is over. It may start calls, and must not wait for any.
tutti_result tutti_future_on_ready(tutti_future* future, void (*callback)(void* user), void* user);
/// Withdraws a started recv of which nothing has arrived; the call then fails with TUTTI_ABORTED.
tutti_result tutti_future_withdraw(tutti_comm* comm, tutti_future* future);
/// Frees the handle; the call goes on. NULL is ignored.
void tutti_future_free(tutti_future* future);

// Memory ------------------------------------------------------------------------------------------

/// Zeroed memory that the other ranks of the host can address: calls on it are the fastest.
/// tutti_deallocate() frees it, and ignores NULL.
tutti_result tutti_allocate(size_t bytes, void** memory);
void tutti_deallocate(void* memory);
/// Makes the whole pages in existing memory such memory, in place; *first and *registered become
/// these pages. Undo it before you free the memory. core/memory.h has the conditions.
tutti_result tutti_register_memory(void* memory, size_t bytes, void** first, size_t* registered);
void tutti_unregister_memory(void* first);

// Windows: memory of each rank that the others write to. comm/window.h describes order and signals.

enum { TUTTI_WINDOW_SIGNALS = 16 };  // of a rank for each peer

/// Collective. `memory` stays the program's; NULL: the window has memory of its own.
tutti_result tutti_window_open(tutti_comm* comm, void* memory, size_t bytes, tutti_window** window);
/// This rank's memory; NULL if `window` is NULL or has ended.
void* tutti_window_data(const tutti_window* window);
/// The bytes of rank `peer`.
tutti_result tutti_window_bytes(const tutti_window* window, int peer, size_t* bytes);
/// The memory of rank `peer` where this process can address it; else *memory becomes NULL.
tutti_result tutti_window_map(const tutti_window* window, int peer, void** memory);
tutti_result tutti_window_put(tutti_window* window, int peer, size_t offset, const void* from,
                              size_t bytes);
/// The same; signal `index` follows.
tutti_result tutti_window_put_signal(tutti_window* window, int peer, size_t offset,
                                     const void* from, size_t bytes, int index);
tutti_result tutti_window_signal(tutti_window* window, int peer, int index);
/// Waits for `count` signals `index` of rank `peer`, and takes them.
tutti_result tutti_window_wait_signal(tutti_window* window, int peer, uint64_t count, int index);
/// Waits until all ranks are here, then ends this rank's part. Collective.
tutti_result tutti_window_close(tutti_window* window);
/// Ends this rank's part if it has not ended, and frees the handle. NULL is ignored.
void tutti_window_free(tutti_window* window);

#ifdef __cplusplus
}
#endif
#endif

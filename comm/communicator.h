// Communicator: the ranks of a job and the collectives between them. This is the public API.
//
//     auto comm = tutti::Communicator::from_environment();          // under `tutti run -n 4 ...`
//     comm.all_reduce(in, out, count, tutti::DataType::float32);    // sum, on the caller's thread
//     comm.all_reduce(numbers);                                     // the same with a vector
//
// Most functions stand here twice: with pointers, below, and with typed buffers, in typed.h.
// Counts are in elements. Pointers are host memory, but where a function says otherwise. `in ==
// out` (or NCCL's in-place offset, see each function) means in place; any other overlap is an
// error. A call with count 0 is legal and moves nothing. Every function throws tutti::Error.
//
// Threading: one thread at a time calls a communicator, except abort(), error() and wake(), which
// any thread may call at any time. Threads that share a communicator start() their calls, one at a
// time, and wait for the futures side by side (or see run_or_start()): so a thread that waits in a
// collective does not hold up another one's messages. Different communicators are independent. All
// ranks call the operations of a communicator in the same order. A child of fork() cannot use its
// parent's communicators, and does not disturb them.
//
// Waiting: a blocking call waits for late ranks without limit (they are reported after
// Options::report_after) unless Options::timeout is set. A rank that dies fails the call on all
// others within a second. After a failure the communicator is unusable: every call throws the first
// failure.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Relative, so that the installed headers need only <prefix>/include on the search path.
#include "../bootstrap/unique_id.h"
#include "../collectives/collective.h"
#include "../core/error.h"
#include "../core/types.h"
#include "typed.h"

namespace tutti {

/// How a communicator behaves. The defaults come from the settings (docs/settings.md).
struct Options {
  Options();  // reads the environment
  /// Throws Error(invalid_argument), naming the field, for what no communicator can have. Whatever
  /// makes a communicator calls it first.
  void check() const;

  std::chrono::nanoseconds timeout;             // of one operation; 0: none
  std::chrono::nanoseconds report_after;        // a wait this long is reported once; 0: never
  std::chrono::nanoseconds rendezvous_timeout;  // for all ranks to appear
  std::string algorithm;                        // run this algorithm where it exists; "": choose
  // Of a shrink(): it is refused to ranks that are not the majority, nor half of all with rank 0.
  bool quorum;
  // Those of rank 0 hold for all ranks, and for communicators made of this one (split, shrink):
  bool round_once;    // sums of 16- and 8-bit floats are rounded once; else as the algorithm does
  std::size_t slots;  // per link; 0: chosen
  std::size_t slot_bytes;
  // Of collectives on GPU memory; the same on all ranks:
  std::string cuda_protocols;  // those that may be used, as "ll,simple" or "^ll128"; "": all
  std::size_t cuda_blocks;     // the most thread blocks that a rank may have; 0: chosen
  // The GPU that this rank's buffers will be on, as CUDA numbers them; -1: the calling thread's,
  // when the communicator is made. It only matters where ranks of one process have several GPUs.
  int gpu = -1;
  // Ranks with different ones do not share memory, as if they were on different hosts. "": what the
  // system says (boot and network namespace).
  std::string host_id;
  // The network interfaces by which other hosts reach this rank, as TUTTI_SOCKET_IFNAME names them;
  // "": the one that leads to where the ranks meet.
  std::string interfaces;
};

/// One operation of one rank: what to do with which memory. The functions of Communicator fill it.
/// Owns nothing: spans are read during run() and start(), and copied where they are needed longer.
struct Call {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements, as NCCL counts: per rank's block where there are blocks
  DataType type = DataType::uint8;
  ReduceOp op{};
  int root = 0;        // rooted collectives
  int peer = -1;       // send (in != nullptr or sends) or recv
  bool sends = false;  // send_recv: this call is a send
  // What a caller, as a binding, knows of the call beyond this, less than 2048: calls with
  // different labels do not match. (2048: what split() exchanges.)
  std::uint16_t label = 0;
  // v-variants: elements, and where each block starts (elements; empty: packed). As MPI's.
  std::span<const std::size_t> in_counts{}, in_offsets{}, out_counts{}, out_offsets{};
  // Of this call, where it is not Options::timeout (0); max(): none. Not on GPU memory.
  std::chrono::nanoseconds timeout{0};
};

/// The result of a started call; copies refer to the same one. Destroying it without wait() is
/// allowed: the operation goes on. Any thread may use it.
class Future {
 public:
  Future() = default;
  bool valid() const { return state_ != nullptr; }
  /// Whether it has finished or failed; never blocks, and costs a load.
  bool ready() const;
  /// Blocks until it has finished; throws its error.
  void wait();
  /// The same, but not for longer: false when it has not finished by then.
  bool wait_for(std::chrono::nanoseconds longest);
  bool wait_until(std::chrono::steady_clock::time_point deadline);
  /// Why it has failed; none where it has succeeded, and as long as it is not ready. Never blocks.
  std::optional<Error> error() const;
  /// Calls `callback` once it has finished or failed: on the thread that runs this rank's started
  /// calls, or at once, on this thread, where it is ready. Several are called in this order, and
  /// before destroy() of its communicator, or a blocking call whose order it keeps (start()), goes
  /// on. All that the rank has started stands still meanwhile, so it should be short, and must not
  /// block: it may start() other calls, but neither wait for any nor make blocking ones (most of
  /// which throw invalid_usage there). What it throws is logged.
  void on_ready(std::function<void()> callback);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator : public TypedCalls<Communicator> {
 public:
  /// Rank and size from the launcher: `tutti run`, torchrun, Open MPI, MPICH or Slurm; alone (one
  /// rank) where none of them is found. Blocks until all ranks are there.
  static Communicator from_environment(const Options& options = {});
  /// All `size` ranks call this with the same id (make_unique_id(), carried by the user). Ranks may
  /// be processes, or threads of one process.
  static Communicator create(const UniqueId& id, int rank, int size, const Options& options = {});
  /// `size` ranks in this process, one communicator each, for that many threads.
  static std::vector<Communicator> create_local(int size, const Options& options = {});
  /// The same, a rank for each of the options, which may differ in `gpu` alone.
  static std::vector<Communicator> create_local(const std::vector<Options>& options);

  Communicator();  // empty
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // destroy(), without throwing

  int rank() const;
  int size() const;
  /// What carries the bytes between the ranks, for people: "shared memory inside hosts, tcp
  /// across". Which way UCX takes is known once there are connections.
  std::string transports() const;

  using TypedCalls::all_gather;
  using TypedCalls::all_gather_v;
  using TypedCalls::all_reduce;
  using TypedCalls::all_to_all;
  using TypedCalls::all_to_all_v;
  using TypedCalls::broadcast;
  using TypedCalls::gather;
  using TypedCalls::recv;
  using TypedCalls::reduce;
  using TypedCalls::reduce_scatter;
  using TypedCalls::reduce_scatter_v;
  using TypedCalls::scatter;
  using TypedCalls::send;

  /// out[i] = in_0[i] op in_1[i] op ... on every rank; the same bits on all.
  void all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op = {});
  /// out = in_0, in_1, ...: `count` elements from every rank. In place: in == out + rank * count.
  void all_gather(const void* in, void* out, std::size_t count, DataType type);
  /// out = block `rank` of the reduction of `in` (size() blocks of `count`). In place: out == in +
  /// rank * count.
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                      ReduceOp op = {});
  /// out = the root's `in`. `in` is read on the root only.
  void broadcast(const void* in, void* out, std::size_t count, DataType type, int root);
  /// The root's out = the reduction. Elsewhere `out` may be null and is never written.
  void reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op, int root);
  /// The root's out = in_0, in_1, ... Elsewhere `out` may be null. In place: in == out + root *
  /// count.
  void gather(const void* in, void* out, std::size_t count, DataType type, int root);
  /// out = block `rank` of the root's `in`. In place: out == in + root * count on the root.
  void scatter(const void* in, void* out, std::size_t count, DataType type, int root);
  /// Block i of `in` goes to rank i; block j of `out` comes from rank j. No in-place form.
  void all_to_all(const void* in, void* out, std::size_t count, DataType type);

  /// As all_gather with counts[r] elements from rank r, at offsets[r] of `out` (empty: packed).
  void all_gather_v(const void* in, void* out, std::span<const std::size_t> counts,
                    std::span<const std::size_t> offsets, DataType type);
  /// As reduce_scatter with counts[r] elements for rank r, packed in `in`.
  void reduce_scatter_v(const void* in, void* out, std::span<const std::size_t> counts,
                        DataType type, ReduceOp op = {});
  /// in_counts[r] elements from in_offsets[r] go to rank r; out_counts[r] from rank r land at
  /// out_offsets[r]. Empty offsets: packed.
  void all_to_all_v(const void* in, std::span<const std::size_t> in_counts,
                    std::span<const std::size_t> in_offsets, void* out,
                    std::span<const std::size_t> out_counts,
                    std::span<const std::size_t> out_offsets, DataType type);

  /// Point to point. Matched in order for each pair; a send to oneself needs its recv in one
  /// group(). A send may return before the receiver has taken the data.
  void send(const void* in, std::size_t count, DataType type, int peer);
  void recv(void* out, std::size_t count, DataType type, int peer);

  void barrier();

  /// Runs `call`: on this thread, or, while something is under way that was started on this
  /// communicator, beside it, in the order that start() gives it. So a blocking send does not wait
  /// for a started all_reduce, nor a barrier for a started recv.
  void run(const Call& call);
  /// As run(), for threads that share a communicator and take turns to call it, by a lock of
  /// theirs. Where the call has to wait while `wanted` is not 0, it becomes a started one, and its
  /// future is returned, to be waited for without the lock; else it is over, and the future is
  /// empty. A thread whose turn it is not counts `wanted` up and calls wake().
  Future run_or_start(const Call& call, const std::atomic<int>& wanted);
  void wake() const;
  /// Puts `call` on a stream (a cudaStream_t) of the GPU whose memory its buffers are, and returns;
  /// it may be captured into a graph. What fails later is thrown by the next call of the
  /// communicator. Ranks may be processes, on one GPU or several, or threads; those of one process
  /// share a GPU, at most 16 of them, and each has a stream of its own, or all are called in one
  /// group(), which makes their calls one kernel. The sends and receives of a group are one kernel,
  /// after its collectives. Between processes, a rank's first calls wait for the first calls of the
  /// ranks that they need. Throws Error(system) in a build without CUDA.
  void run(const Call& call, void* stream);
  /// Starts `call` and returns; its memory belongs to the operation until that is over. One thread
  /// of the rank, which exists from the first start() on, runs the started calls of this
  /// communicator and of all that were made from it (split, shrink), side by side. Those of
  /// different communicators have no order, so ranks may start them in different ones. Within a
  /// communicator the collectives keep the order of the calls, and so do the messages to one peer,
  /// and those from one peer; otherwise messages may overtake each other, and collectives, and be
  /// overtaken. So a call that needs what another one brings waits for that one's future. A failure
  /// ends all that was started on its communicator, and nothing else. Messages to oneself need a
  /// group().
  Future start(const Call& call);
  /// Takes a started recv back, unless something of its message has come: its future fails with
  /// `aborted`, later, and a recv that is started then gets that message. Otherwise it goes on.
  void withdraw(const Future& recv);

  /// Ranks with equal `color` form a new communicator, ordered by `key`, then by rank; a negative
  /// color: none (the result is empty). Collective over all ranks of this one. It begins when all
  /// that this rank has started here is over.
  Communicator split(int color, int key, const Options& options = {});

  /// The ranks that are not in `excluded` form a new communicator, in their order. Only these call
  /// it, with the same list. Nothing is exchanged over this communicator, so it may have failed:
  /// this is how the survivors go on. The excluded ranks may be dead. When another one dies before
  /// all have joined, or is lost to one of them, it throws peer_lost on all of them, with that rank
  /// of this communicator: to be called again without it, too (docs/failures.md). Where
  /// Options::quorum asks for a majority that these ranks are not, it throws invalid_usage.
  Communicator shrink(std::span<const int> excluded, const Options& options = {});

  /// Runs the plan `text` (docs/plans.md) for its collective from now on. It is verified first:
  /// throws unproven_plan, with the reason, unless it is proved, and invalid_argument for one that
  /// this communicator cannot run (another number of ranks, links of too few slots). All ranks call
  /// it with the same text, which all take or all refuse. Does not wait for the others.
  void use_plan(std::string_view text);

  /// The failure that the next call would throw, of whatever rank: also that one has died, of which
  /// nobody has heard yet. From any thread; costs a system call for each rank and waits for nobody.
  std::optional<Error> error() const;
  /// Makes every rank's present and future operations on this communicator fail. From any thread.
  void abort(std::string_view reason = "");
  /// Leaves: waits for this rank's own operations, then frees everything. Does not wait for others.
  /// Inside of a group(), it leaves when the group has ended.
  void destroy();
  explicit operator bool() const { return impl_ != nullptr; }

  struct Impl;
  /// For bindings. Throws Error(invalid_usage) on an empty (default, moved-from, destroyed) one.
  Impl& impl() const {
    if (!impl_)
      throw Error(ErrorCode::invalid_usage,
                  "this communicator is empty: it was destroyed, moved from, or never made");
    return *impl_;
  }

 private:
  friend class TypedCalls<Communicator>;
  explicit Communicator(std::unique_ptr<Impl> impl);
  [[noreturn]] void refuse_size(const char* call, const char* buffer, std::size_t has,
                                std::size_t each, std::size_t ranks);
  std::unique_ptr<Impl> impl_;
};

/// Calls inside `body` (of any communicators of this thread) are collected and run together when it
/// ends: sends and receives progress at the same time, so crossing ones cannot deadlock;
/// collectives run in the order of the calls. Nests. An exception from `body` drops the group.
void group(const std::function<void()>& body);
/// The same in parts, for bindings: group_drop() ends a group of which nothing is to run.
void group_start();
void group_end();
void group_drop();

}  // namespace tutti

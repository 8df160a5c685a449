// Communicator: the ranks of a job and the collectives between them. This is the public API.
//
//     auto comm = tutti::Communicator::from_environment();          // under `tutti run -n 4 ...`
//     comm.all_reduce(in, out, count, tutti::DataType::float32);    // sum, on the caller's thread
//     comm.all_reduce(numbers);                                     // the same with a vector
//
// The functions for single operations are in named_calls.h: all_reduce() and its kind. Counts are
// in elements. Pointers are host memory unless a function says otherwise. `in == out` (or NCCL's
// in-place offset, see each function) means in place; any other overlap is an error. A call with
// count 0 is legal and moves nothing. Every function throws tutti::Error.
//
// Threading: any thread may call any communicator at any time. The calls of a communicator take
// turns, in the order in which the threads come; as with MPI, all ranks make its collectives in the
// same order. A call that has to wait for other ranks while another thread wants its turn goes on
// beside that one's, on the rank's engine (start()). Those that make communicators or windows,
// use_plan(), release_memory() and calls on GPU memory keep their turns to their ends. abort() and
// error() need no turn. No thread may be in a call of a communicator, or come to one, when another
// moves or destroys it. A signal's handler that calls the communicator that its thread is calling
// gets invalid_usage. A child of fork() cannot use its parent's communicators.
//
// Waiting: a blocking call waits for late ranks without limit (they are reported after
// Options::report_after) unless Options::timeout is set. A rank that dies fails the call on all
// others within a second. After a failure the communicator is unusable: every call throws the first
// failure.
#pragma once

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
#include "call.h"
#include "named_calls.h"

namespace tutti {

class Window;

/// How a communicator behaves. The defaults come from the settings (docs/settings.md).
struct Options {
  Options();  // reads the environment
  /// Throws Error(invalid_argument), which names the field, for a value that no communicator can
  /// have. Every function that makes a communicator calls it first.
  void check() const;

  std::chrono::nanoseconds timeout;             // of one operation; 0: none
  std::chrono::nanoseconds report_after;        // report a wait this long once; 0: never
  std::chrono::nanoseconds rendezvous_timeout;  // for all ranks to appear
  std::string algorithm;                        // run this algorithm where it exists; "": choose
  // shrink() refuses ranks that are neither the majority nor half of all ranks with rank 0.
  bool quorum;
  // Rank 0's values apply to all ranks, and always to communicators made of this one:
  bool encrypt;     // what goes to other hosts, as TUTTI_ENCRYPT; rank 0 must ask for it, too
  bool round_once;  // round sums of 16- and 8-bit floats once; else as the algorithm does
  // Reductions give bits that depend on the inputs and the order of the ranks alone
  // (docs/determinism.md). The same on all ranks; communicators made of this one have it, too.
  bool invariant;
  std::size_t slots;  // per link; 0: chosen
  std::size_t slot_bytes;
  // Of collectives on GPU memory; the same on all ranks:
  std::string cuda_protocols;  // the protocols to use, as "ll,simple" or "^ll128"; "": all
  std::size_t cuda_blocks;     // the most thread blocks of a rank; 0: chosen
  // The GPU of this rank's buffers, by CUDA's number; -1: the GPU of the thread that makes the
  // communicator. It matters only if ranks of one process have several GPUs.
  int gpu = -1;
  // Ranks with different host ids do not share memory, as if they were on different hosts. "": what
  // the system says (boot and network namespace).
  std::string host_id;
  // The network interfaces by which other hosts reach this rank, as TUTTI_SOCKET_IFNAME names them;
  // "": the interface that leads to the meeting place of the ranks.
  std::string interfaces;
};

/// What a rank of a communicator holds of its host's memory, in bytes.
struct MemoryUse {
  // release_memory() gives back the first two.
  std::size_t links = 0;    // messages on their way
  std::size_t staging = 0;  // copies of buffers, and intermediate results
  std::size_t control = 0;  // everything else that the ranks share
};

/// The result of a started call; copies refer to the same one. You may destroy it without wait():
/// the operation goes on. Any thread may use it.
class Future {
 public:
  Future() = default;
  bool valid() const { return state_ != nullptr; }
  /// Whether the call has finished or failed. Never blocks, and costs a load.
  bool ready() const;
  /// Blocks until the call has finished; throws its error. Where no other thread runs the rank's
  /// started calls, this one does meanwhile.
  void wait();
  /// Waits as wait() does, with a limit: false if the call has not finished by then. With 10 ms or
  /// more, it may return later, by the time that this thread takes to copy what has come.
  bool wait_for(std::chrono::nanoseconds longest);
  bool wait_until(std::chrono::steady_clock::time_point deadline);
  /// The call's error; none if it has succeeded or is not ready yet. Never blocks.
  std::optional<Error> error() const;
  /// Runs `callback` once the call has finished or failed: on the thread that runs this rank's
  /// started calls (its engine's, or one that waits for a future, so do not wait with a lock that a
  /// callback takes), or, if the future is ready, at once on this thread. Callbacks of one future
  /// run in the order of registration. They run before destroy() of the communicator goes on, and
  /// before a blocking call goes on that comes after this one in its order (start()). Meanwhile all
  /// started calls of the rank stand still. So a callback should be short, and must not block: it
  /// may start() other calls, but it may neither wait for any nor make blocking ones (most of them
  /// throw invalid_usage there). An exception of a callback is logged.
  void on_ready(std::function<void()> callback);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator;

/// The named functions in a form that does not block: started, each returns the Future of its call;
/// or put on a stream, on GPU memory.
template <class Result>
class Form : public NamedCalls<Form<Result>, Result> {
 public:
  explicit Form(Communicator& comm, void* stream = nullptr) : comm_(comm), stream_(stream) {}

 private:
  template <class, class>
  friend class NamedCalls;
  Communicator& communicator() { return comm_; }
  Result submit(const Call& call);
  Communicator& comm_;
  void* stream_;
};

class Communicator : public NamedCalls<Communicator, void> {
 public:
  /// Rank and size from the launcher: `tutti run`, torchrun, Open MPI, MPICH or Slurm; one rank
  /// alone without a launcher. Blocks until all ranks are there.
  static Communicator from_environment(const Options& options = {});
  /// All `size` ranks call this with the same id (of make_unique_id(); the program carries it to
  /// them). Ranks may be processes, or threads of one process.
  static Communicator create(const UniqueId& id, int rank, int size, const Options& options = {});
  /// `size` ranks in this process, one communicator each, for that many threads.
  static std::vector<Communicator> create_local(int size, const Options& options = {});
  /// As create_local(size), with a rank for each of `options`, which may differ in `gpu` alone.
  static std::vector<Communicator> create_local(const std::vector<Options>& options);
  /// One rank, which others may meet later (handle(), reconfigure()).
  static Communicator alone(const Options& options = {});

  Communicator();  // empty
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// As destroy(). Where another thread is in a blocking call of this rank, that call fails with
  /// `aborted`, on all ranks, and this waits for its end.
  ~Communicator();

  int rank() const;
  int size() const;
  /// The transports between the ranks, for people: "shared memory inside hosts, tcp across". UCX
  /// names its own transports once there are connections.
  std::string transports() const;

  /// The forms of the named functions that do not block: comm.start().all_reduce(...), as
  /// start(call) below; comm.on(stream).all_reduce(...), as run(call, stream).
  Form<Future> start() { return Form<Future>(*this); }
  Form<void> on(void* stream) { return Form<void>(*this, stream); }

  /// Runs `call` to its end. While a started call of this communicator is under way, it runs beside
  /// that one, in the order that start() describes. So a blocking send does not wait for a started
  /// all_reduce, nor a barrier for a started recv.
  void run(const Call& call);
  /// Puts `call` on a stream (a cudaStream_t) of the GPU that has its buffers, and returns. On
  /// whatever streams they are, a rank's collectives keep the order of the calls, and so do its
  /// messages to one peer and from one. A graph may capture the call; then this holds in the graph.
  /// The next call of the communicator throws a later failure. Ranks may be processes, on one GPU
  /// or several, or threads. The ranks of one process share a GPU, at most 16 of them. Each has a
  /// stream of its own, or one group() has the calls of all, which makes them one kernel. The sends
  /// and receives of a group are one kernel, after its collectives. Between processes, a rank's
  /// first calls wait for the first calls of the ranks that they need. Throws Error(system)
  /// where libtutti_cuda.so, a part of Tutti, is missing.
  void run(const Call& call, void* stream);
  /// Starts `call` and returns; its memory belongs to the operation until that is over. A thread
  /// that waits for a future runs the started calls of this communicator and of all communicators
  /// made from it (split, shrink), side by side; where none does, one thread of the rank, which
  /// exists from the first start() on. In a loop of start() and wait(), that thread gives the
  /// caller up to 4 ms to wait, before it begins a call itself. Calls of different communicators
  /// have no order, so ranks may start them in different orders. Within a communicator collectives
  /// keep the order of the calls. So do the messages to one peer, and the messages from one peer.
  /// Apart from that, messages and collectives may overtake each other. So before you start a call
  /// that needs the result of another one, wait for its future. A failure ends all started calls of
  /// its communicator, and no others. Messages to the own rank need a group().
  Future start(const Call& call);
  /// Withdraws a started recv, unless a part of its message has arrived; then the recv goes on. The
  /// future of a withdrawn recv fails with `aborted`, later, and a recv that is started after it
  /// gets the message. Throws Error(invalid_usage) for a call of another kind that is not over.
  void withdraw(const Future& recv);

  /// What this communicator was made with. Those that are made of it (split, shrink, reconfigure,
  /// grow) have the same, as long as they are not given others.
  const Options& options() const;

  /// Ranks with equal `color` form a new communicator, ordered by `key`, then by rank; a negative
  /// color: no communicator (the result is empty). Collective over all ranks of this communicator.
  /// It begins when all started calls of this rank here are over.
  /// The new one has this one's options(), unless it is given others.
  Communicator split(int color, int key, const std::optional<Options>& options = {});

  /// The ranks that are not in `excluded` form a new communicator, in their order. Only these ranks
  /// call it, with the same list. They exchange nothing over this communicator, so it may have
  /// failed: in this way the survivors go on. The excluded ranks may be dead. If another rank dies
  /// before all have joined, or is lost to one of them, all of them get peer_lost with that rank of
  /// this communicator. Then they call it again and exclude that rank too (docs/failures.md).
  /// Throws invalid_usage if Options::quorum asks for a majority and these ranks are not one. The
  /// new one has this one's options(), unless it is given others.
  Communicator shrink(std::span<const int> excluded, const std::optional<Options>& options = {});

  /// All that others need to meet this rank in reconfigure(): a line of text with the address at
  /// which it listens, and a secret. The program carries it to them privately: any process that has
  /// it may join the rank. It is good until the rank's next reconfigure() that succeeds. The first
  /// call opens a listener.
  std::string handle() const;
  /// The ranks that `handles` name form the next communicator, with the ranks 0, 1, ... in this
  /// order. Exactly these ranks call it, each on any communicator of its own (alone(), one that has
  /// failed), with the same list and the same positive `number`, which none of them has used
  /// before. So ranks may leave, join and change places. Ranks that know each other stay connected.
  /// When it succeeds, this communicator ends: calls under way and later ones fail with `aborted`
  /// (communicators that were made from it go on). When it fails, this one stays as it was, and the
  /// ranks may try again with another number. Options::rendezvous_timeout bounds the call. Throws,
  /// on all ranks: peer_lost with the rank of the list that is gone; mismatch for different lists;
  /// timed_out with the ranks that were not called; invalid_usage for a number that was used
  /// before; invalid_argument for what is no list of handles, or an old one (docs/membership.md).
  /// The new one has this one's options(), unless it is given others.
  Communicator reconfigure(std::span<const std::string> handles, std::uint64_t number,
                           const std::optional<Options>& options = {});
  /// All ranks of this communicator call it, and newcomers call create(), with one id and the new
  /// `size`: members keep their ranks, newcomers have the ranks from size() on. This communicator
  /// goes on beside the new one. At members the new one has this one's options(), unless it is
  /// given others; newcomers give their own.
  Communicator grow(const UniqueId& id, int size, const std::optional<Options>& options = {});

  /// Collective: a window (window.h), in which each rank has `memory` of its own, of any size, also
  /// 0; it stays the program's, and must not be freed before the window has ended. All ranks get it
  /// or none. It begins when all started calls of this rank here are over. Throws invalid_argument
  /// for memory that other processes of the host cannot write to (docs/windows.md).
  Window window(void* memory, std::size_t bytes);
  /// A window as above, in memory of allocate(), which the window owns.
  Window window(std::size_t bytes);

  MemoryUse memory() const;
  /// Gives memory back that the communicator will not need for a while; the next calls take it
  /// again. Collective: all ranks call it, and where one of them has started calls that are not
  /// over, all throw invalid_usage, and nothing has changed. Rings that an RDMA device or UCX knows
  /// stay.
  void release_memory();

  /// Runs the plan `text` (docs/plans.md) for its collective from now on. Verifies it first: throws
  /// unproven_plan, with the reason, if the proof fails, and invalid_argument for a plan that this
  /// communicator cannot run (another number of ranks, links of too few slots). All ranks call it
  /// with the same text, and all accept or all refuse it. Does not wait for the others.
  void use_plan(std::string_view text);

  /// How long the collective `call` is predicted to take, on host memory, from the first rank's
  /// call until the last one's return (docs/cost-model.md). Runs nothing, and asks no other rank.
  /// Throws invalid_argument for send and recv, which have no plan.
  std::chrono::nanoseconds predict(const Call& call);

  /// The failure that the next call would throw, of any rank. Also finds a dead rank that no call
  /// has noticed yet. From any thread; costs a system call for each rank and waits for no rank.
  std::optional<Error> error() const;
  /// Makes every rank's present and future operations on this communicator fail. From any thread.
  void abort(std::string_view reason = "");
  /// Leaves: waits for this rank's own operations, then frees everything. Does not wait for others.
  /// Inside of a group(), the rank leaves when the group has ended. Throws invalid_usage, and has
  /// done nothing, while another thread is in a blocking call of this rank: abort() ends that.
  void destroy();
  explicit operator bool() const { return impl_ != nullptr; }

  struct Impl;
  /// For bindings. Throws Error(invalid_usage) on an empty communicator (default, moved-from,
  /// destroyed).
  Impl& impl() const {
    if (!impl_)
      throw Error(ErrorCode::invalid_usage,
                  "this communicator is empty: it was destroyed, moved from, or never made");
    return *impl_;
  }

 private:
  template <class, class>
  friend class NamedCalls;
  Communicator& communicator() { return *this; }
  void submit(const Call& call) { run(call); }
  static constexpr ReduceOp copy(const ReduceOp& op) {
    return {op.kind, op.scalar_type, op.scalar};
  }
  explicit Communicator(std::unique_ptr<Impl> impl);
  void leave() noexcept;
  [[noreturn]] void refuse_size(const char* call, const char* buffer, std::size_t has,
                                std::size_t each, std::size_t ranks);
  std::unique_ptr<Impl> impl_;
};

template <class Result>
Result Form<Result>::submit(const Call& call) {
  if constexpr (std::is_void_v<Result>)
    return comm_.run(call, stream_);
  else
    return comm_.start(call);
}

/// Collects the calls inside `body` (of any communicators of this thread), and runs them together
/// when it ends. Sends and receives progress at the same time, so crossing ones cannot deadlock;
/// collectives run in the order of the calls. Groups nest. An exception from `body` drops the
/// group.
void group(const std::function<void()>& body);
/// A group in parts, for bindings: group_drop() ends it and runs none of its calls.
void group_start();
void group_end();
void group_drop();
/// Whether a group is open on this thread: calls that are made now run when it ends.
bool inside_group();

}  // namespace tutti

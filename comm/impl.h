// What a communicator consists of.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "comm/bind.h"
#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/engine.h"
#include "comm/session.h"
#include "comm/window.h"
#include "core/turns.h"
#include "device/gpus.h"
#include "execute/host/job.h"

namespace tutti {

struct ConditionCall;
class DeviceTeam;
class FarWindows;
class Membership;

/// A collective that was called before, ready to be called again with other addresses: what a loop
/// repeats is looked up, not made anew.
struct PreparedCall {
  explicit PreparedCall(const Call& c) : call(c) {}
  KeptCall call;  // as it was made first; of all_to_all_v, when its counts were others last
  BufferSizes sizes;
  const ReadyPlan* plan = nullptr;  // the choice; none yet, or nothing to move
  const ReadyPlan* bound =
      nullptr;             // that `binding` runs: the choice, or one that needs no windows
  std::uint64_t hash = 0;  // of the signature
  Tables tables;           // what the binding of uneven blocks points to
  Binding binding;         // signature included
  HostAgreement windows;   // whether its buffers lie there
};

struct Communicator::Impl {
  Impl(Session session, const Options& options);
  ~Impl();

  /// A thread's turn: what a call needs of the communicator is this thread's alone until it ends,
  /// or the engine's, where started calls are under way.
  using Turn = std::unique_lock<Turns>;
  /// To start a call. On the engine's thread it may be empty: what that has, no other thread uses.
  Turn turn_to_start();
  /// When all started calls are over, too.
  Turn turn_alone() {
    check_process();
    Turn turn(turns);
    drain_started();
    return turn;
  }
  /// A thread that waits for what the engine runs for it. As long as there is one, this lives on.
  class Blocked {
   public:
    explicit Blocked(Impl& impl) : blocked_(impl.blocked) { blocked_.fetch_add(1); }
    ~Blocked() { blocked_.fetch_sub(1, std::memory_order_release); }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    std::atomic<int>& blocked_;
  };

  /// Runs a call to its end; where another thread wants its turn meanwhile, on the engine. Throws
  /// invalid_argument, before anything has begun, for one that is wrong.
  void run(const Call& call);
  /// Runs a call in `turn`, which ends where the call moves to the engine; or, instead of a call,
  /// what is left of a window's.
  void run(const Call& call, Turn& turn, const std::shared_ptr<ConditionCall>& waiting = {});
  /// Runs a call to its end in this thread's turn, which it keeps; nothing is started.
  void run_in_turn(const Call& call);
  /// Throws in a child of fork(), to which the communicator does not belong.
  void check_process() const {
    if (group->is_inherited()) throw_inherited();
  }
  [[noreturn]] void throw_inherited() const;
  /// Whether a thread is in a blocking call.
  bool has_callers() const {
    return turns.are_taken() || blocked.load(std::memory_order_acquire) > 0;
  }
  /// Makes the communicator fail, where other threads are in blocking calls, and waits for their
  /// ends. False: they have not ended in time, so nothing that they use may be freed.
  bool end_callers();
  /// Throws if the communicator has failed, or the call is wrong. Starts nothing.
  void check(const Call& call) const;
  /// Runs `check` of a call on memory of the host. It leaves the error for the other ranks: they
  /// will wait in vain for the call, and name this error in their own.
  template <class Check>
  void or_tell(Check&& check) const {
    try {
      check();
    } catch (const Error& e) {
      if (!group->liveness().failed()) tell_refusal(e.what());
      throw;
    }
  }
  void tell_refusal(std::string_view why) const {
    if (group->is_inherited()) return;  // the parent has made no such call
    // `sequence` may be the engine's at this time.
    group->control().refused.say(newest_sequence(records_of(group->control(), CallsOn::host)) + 1,
                                 why);
    // Before this rank leaves, perhaps.
    for (int r = 0; r < group->size(); ++r) group->diagnostics().tell(r);
  }
  /// As check(), and tells the others. Throws for a message to oneself, too, which has to be in one
  /// group with its other half.
  void check_alone(const Call& call) const;
  /// Whether started calls are not over: then the engine's thread has this communicator.
  bool has_started() const { return engine_runs.load(std::memory_order_acquire); }
  /// Waits until they are. In a child, which does not have the engine's thread, that would be for
  /// ever.
  void drain_started();
  StartedCalls& started_calls();
  /// A call that is half done is unwound by something that no call of Tutti's throws: its
  /// communicator fails, and the other ranks let go of its buffers.
  void fail_unwound() noexcept;
  /// Makes an exception from a running operation the failure of all ranks. Returns that.
  Error fail_with(const Error& thrown);

  /// The prepared form of a collective; checks the call, as far as it is not known to be right.
  PreparedCall& look_up(const Call& call);
  /// Numbers it; false when there is nothing to move (the call is over then). The next steps, once
  /// for each call: bind_agreement() where agrees(), and when that has run, bind().
  bool begin(PreparedCall& p, const Call& call);
  /// Whether the ranks have to find out together if this call may run with a plan that addresses
  /// other ranks' memory: they exchange whether their buffers lie in windows.
  bool agrees(const PreparedCall& p) const {
    return p.plan->path.buffers && !group->one_process() && p.windows.is_due();
  }
  const Binding& bind_agreement(const PreparedCall& p, const Call& call);
  /// The call itself, with what the newest agreement has brought. Valid until the next one.
  const Binding& bind(PreparedCall& p, const Call& call);
  void bind_anew(PreparedCall& p, const Call& call, const ReadyPlan& plan);
  /// The binding of a call that repeats the newest collective, or the newest message of its kind,
  /// addresses and all: nothing has to be looked up, and the ranks have nothing to agree on. Else
  /// null.
  const Binding* bind_if_repeated(const Call& call);
  bool repeats_newest(const Call& call) const;
  const Binding& bind_again(const Call& call);

  /// The messages to one peer, or from it.
  struct Messages {
    Messages(RankGroup& group, Workspace& workspace) : operation(group, workspace) {}
    Operation operation;
    Binding binding;              // of the newest one
    std::uint32_t long_ones = 0;  // that this rank has sent from where the receiver can copy them
  };
  Messages& messages(int peer, bool sends);
  Messages* repeated_message(const Call& call) const;
  const Binding& bind_message(Messages& messages, const Call& call);
  /// Whether `call` sends a message that its receiver may copy from this rank's memory. Each send
  /// decides it anew.
  bool may_be_pulled(const Call& call) const;
  /// Whether the receiver of `call`'s message copies it from this rank's memory.
  bool is_pulled(Messages& messages, const Call& call) const;
  /// Calls under way and all later ones fail with `aborted`, on all ranks; nothing, where the
  /// communicator has failed before.
  void end(const std::string& why);
  /// Before use_plan(): what was prepared runs another plan.
  void forget_calls();
  /// `its_options`, of a communicator that is made of this one: with its GPU, unless they name one,
  /// and with invariant bits where it has them.
  Options inherited(Options its_options) const {
    if (its_options.gpu < 0) its_options.gpu = options.gpu;
    its_options.invariant = its_options.invariant || geometry.invariant;
    return its_options;
  }
  /// This rank's part of a new communicator of some ranks of this one; `keys` name their segments,
  /// `id` the communicator.
  std::unique_ptr<Impl> part(const std::vector<int>& ranks, std::vector<std::uint64_t> keys,
                             std::uint64_t id, const Options& its_options);

  /// Collective: this rank's part of a window; `memory` is null where it is to be allocated.
  std::shared_ptr<Window::Impl> open_window(void* memory, std::size_t bytes);
  /// Each rank's `bytes` that it tells the others when they open a window.
  void gather_cards(const void* mine, void* all, std::size_t bytes);

  Options options;
  Geometry geometry;
  std::unique_ptr<RankGroup> group;
  Plans plans;
  WaitPolicy policy;
  Workspace workspace;
  Turns turns;                           // of threads; of all that follows
  std::atomic<int> blocked{0};           // see Blocked
  std::atomic<bool> engine_runs{false};  // see has_started()
  Operation operation;                   // of the collective at hand
  Operation agreement;                   // which goes before it
  ReadyPlan agreement_plan;
  Binding agreement_binding;
  std::uint8_t in_windows = 0;                          // whether this rank's buffers lie there
  std::uint8_t all_in_windows = 0;                      // all ranks'
  std::vector<std::unique_ptr<Messages>> all_messages;  // by peer and direction
  std::uint64_t sequence = 0;         // of the newest collective on memory of the host
  std::uint64_t device_sequence = 0;  // on a GPU
  std::uint64_t splits = 0;           // calls of split()
  // How often which ranks were left by shrink(): the same on all of these.
  std::map<std::vector<int>, std::uint64_t> shrinks;
  static constexpr std::size_t kPrepared = 64;
  std::array<std::unique_ptr<PreparedCall>, kPrepared> prepared;  // by a hash of what was called
  PreparedCall* newest = nullptr;                                 // of `prepared`
  std::uint64_t repeats = 0;  // how often the newest one has been called in a row
  std::shared_ptr<Membership> membership;
  std::unique_ptr<StartedCalls> started;  // from the first one on
  Gpus gpus = cuda_gpus();
  std::shared_ptr<DeviceTeam> team;         // from the first call on GPU memory on
  std::shared_ptr<FarWindows> far_windows;  // from the first window on, where there are other hosts
  std::vector<Window::Impl*> windows;       // that have not ended
  std::uint64_t windows_opened = 0;
};

/// How many group()s are open on this thread, one in the other.
extern constinit thread_local int open_groups;
/// On how many threads one is: every call asks, and this is cheaper to read. (Thread-local memory
/// at a fixed place would be too, but all of it would lie there, CUDA's as well, for which dlopen()
/// has no room.)
extern std::atomic<int> threads_in_groups;
inline bool group_is_open() {
  // relaxed: of this thread's groups it has seen its own writes.
  return threads_in_groups.load(std::memory_order_relaxed) > 0 && open_groups > 0;
}
/// For what ranks meet at, as `call`: throws Error(invalid_usage) inside of a group(), and in a
/// callback of a Future.
void refuse_to_meet(const char* call);
/// Destroys a communicator at the end of the open group, which may have calls of it.
void leave_after_group(std::unique_ptr<Communicator::Impl> impl);
/// Keeps a checked call for the end of the open group.
void keep_for_group(Communicator::Impl& impl, const Call& call);
void keep_for_group(std::shared_ptr<Window::Impl> window, const WindowCall& call);
/// Keeps a call on GPU memory for the group, with its stream.
void keep_for_group(Communicator::Impl& impl, const Call& call, device::Stream stream);

}  // namespace tutti

// The host executor: one rank's plan, bound to one call, run on a CPU core without ever blocking.
//
// advance() does every step that can be done now and returns; the caller decides how to wait
// (wait.h). So one thread can drive several lanes, several operations of a group, or several ranks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/combine.h"
#include "core/window_memory.h"
#include "execute/host/condition.h"
#include "execute/host/write_trial.h"
#include "execute/program.h"
#include "execute/signature.h"
#include "execute/windows.h"

namespace tutti {

/// A call, ready to run.
struct Binding {
  const RankPlan* plan = nullptr;
  Condition* condition = nullptr;  // instead of a plan: the call is over when it holds
  /// The plan, compiled; none: each tile is, when it comes.
  std::shared_ptr<const Programs> programs;
  Signature signature;
  std::uint32_t tag = 0;                // that its messages carry
  std::chrono::nanoseconds timeout{0};  // of this call; 0: the policy's
  bool unchanged = false;               // publish_sequence() is enough
  DataType type = DataType::uint8;
  ReduceOp op;
  BlockTable in, out;
  Tiling tiling;
  bool windows = false;        // the plan addresses other ranks' memory (the same on all ranks),
  bool buffers = false;        // and of that the user's, not tmp alone
  bool tiles_by_lane = false;  // each lane repeats for its own largest block (all_to_all_v)
  bool pulled = false;         // a send: the receiver copies from this rank's memory
  bool canonical = false;      // a reduction has the canonical order (CombineOptions)
  bool stream = false;         // results are larger than the cache: write past it
  // Of a compressed plan: where what its sums lose is noted, by element of `out`, so many times.
  float* left_out = nullptr;
  float left_out_times = 1;
  std::shared_ptr<WriteTrial> trial;  // of the calls so bound; none: `stream` is right
};

/// Memory that a rank's operations share, one after the other: tmp, staging for copies from and to
/// other processes, and staged buffers. Grows until release().
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();
  enum Use { kTmp, kCopies, kInput, kOutput, kUses };
  /// At least `bytes`, in a window.
  std::byte* reserve(Use use, std::size_t bytes);
  std::size_t bytes() const;
  /// Frees all of it, between operations.
  void release();

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  std::array<Piece, kUses> pieces_;
};

class Operation {
 public:
  Operation(RankGroup& group, Workspace& workspace) : group_(group), workspace_(workspace) {}

  /// Starts `binding` over; it, its spans and its plan must outlive the run. Allocates only where a
  /// call needs more than any before it.
  void bind(const Binding& binding);
  /// Does what can be done. True when the operation is finished. Throws Error.
  bool advance();
  /// Whether advance() would do something.
  bool can_advance() const;
  /// Looks whether what it waits for has come from another host; does not wait. Nothing to do where
  /// all ranks are on one.
  void poll() {
    if (spans_hosts_) poll_links();
  }
  bool spans_hosts() const { return spans_hosts_; }
  /// The run ends here because of a failure: the memory of the call is the user's again.
  void abandon();
  /// Whether one of the ranks that it waits for, or will next, last waited on core `core` (as
  /// ControlBlock::core).
  bool waits_for_core(std::uint32_t core) const;

  /// What the operation waits for: the first lane's peer if no lane can move, else peer -1.
  struct Blocked {
    int peer = -1;
    bool sending = false;  // for a free slot, else for a message
    std::uint32_t lane = 0;
    std::size_t step = 0;
    std::size_t tile = 0;
  };
  Blocked blocked() const;
  /// "all_reduce #12 (float32 x 1024, sum)", "recv from rank 1 (float32 x 8)".
  std::string call_text() const;

  RankGroup& group() { return group_; }
  const Binding& binding() const { return *binding_; }

 private:
  struct Lane {
    std::size_t index = 0;
    std::size_t tile = 0;
    std::size_t tiles = 0;
    std::size_t tile_bytes = 0;
    const Action* first = nullptr;  // of the tile at hand, while tile < tiles
    const Action* next = nullptr;
    const Action* end = nullptr;
    std::span<const Action> whole, last;  // tiles' actions
    std::unique_ptr<TileProgram> own;     // of a binding without programs: this tile's
  };
  static_assert(sizeof(BufferAddresses) <= kInlineBytes);
  // What another rank has told of its buffers, and what learn() has made of that.
  struct Peer {
    BufferAddresses said{};
    struct Buffer {
      std::byte* pointer = nullptr;  // mapped here, `bytes` long; else
      std::uint64_t remote = 0;      // an address in its process; with a window, an offset there
      std::size_t bytes = 0;
      std::uint32_t window = 0;  // in which it lies; not mapped as long as `pointer` is null
      std::shared_ptr<SharedMemory> mapping;  // of the window: its owner may free that at any time,
                                              // when its call has failed
    };
    std::array<Buffer, 3> buffers;  // in, out, tmp
  };
  // An operand of the move at hand: a pointer of ours, or an address in another process.
  struct Target {
    std::byte* pointer = nullptr;
    std::uint64_t remote = 0;
    std::int32_t peer = -1;
  };

  ProgramShape shape() const {
    return {binding_->type, binding_->in, binding_->out, binding_->tiling, 1};
  }
  /// The tile that `lane` must not begin yet.
  std::size_t end_of(const Lane& lane) const {
    const bool meets = binding_->windows && !binding_->tiles_by_lane;
    return meets && tile_ + 1 < lane.tiles ? tile_ + 1 : lane.tiles;
  }
  void set_up();
  void poll_links();
  /// Rings the doorbells of other hosts when there is more to send, or nothing else to do.
  void ring_later(const Action& action);
  void ring_far();
  void note_far_sends(std::span<const SendLink> sends);
  /// A link to another host with messages that have not left this process: the operation is not
  /// over before they have. Null: none.
  const SendLink* unsent() const {
    for (const SendLink& s : far_sends_) {
      if (!remote(*s.doorbell)->is_flushed()) return &s;
    }
    return nullptr;
  }
  /// The link of a message that its receiver has yet to pull; null: there is none.
  const SendLink* unread() const {
    if (!binding_->pulled) return nullptr;
    const SendLink& s = programs_->last.sends.front();
    return s.link->all_received() ? nullptr : &s;
  }
  /// Whether nothing is left once all steps are done.
  bool is_over() const {
    return unsent() == nullptr && unread() == nullptr &&
           (binding_->condition == nullptr || binding_->condition->holds());
  }
  void begin_tile(Lane& lane) {
    const std::span<const Action> actions = lane.own                      ? compile_tile(lane)
                                            : lane.tile + 1 == lane.tiles ? lane.last
                                                                          : lane.whole;
    lane.first = lane.next = actions.data();
    lane.end = lane.first + actions.size();
  }
  std::span<const Action> compile_tile(Lane& lane);
  // `shift`: where the tile begins, in bytes from where tile 0 does.
  void perform(const Action& action, std::size_t shift);
  /// The moves of a step that sends bulk messages.
  void move_bulk(const Action& action, std::size_t shift);
  // Long messages between hosts, which need not go through slots (remote_links.cpp).
  /// Does the step, where its messages are sent from memory, or have come into it; false: they are
  /// not.
  bool perform_zero_copy(const Action& action, std::size_t shift);
  /// Where a receive of `action`'s only message, from another host, may be posted; null: nowhere.
  std::byte* receive_buffer(const Action& action, std::size_t shift) const;
  /// The memory from which its messages can be sent; null: there is none.
  const CompiledOperand* send_buffer(const Action& action, bool plain, std::size_t shift) const;
  /// Posts receives of the messages that `lane` waits for, and of those after them.
  void post_receives(const Lane& lane);
  /// Copies what has not left yet of the memory that `action` writes.
  void copy_pending_sends(const Action& action, std::size_t shift);
  bool is_being_sent(const std::byte* begin, std::size_t bytes) const;
  bool has_posted_receive(const std::byte* begin, std::size_t bytes) const;
  void signal(const Action& action);
  void move(const Action& action, const Move& move, std::size_t shift);
  CombineOptions combine_options(const Action& action) const;
  /// The operands are in destinations_: where Binding::left_out has the elements of `out` that a
  /// compressed move completes; null: it completes none there.
  float* left_out(const Action& action, const Move& move) const;
  void move_combined(const Action& action, const Move& move, std::size_t shift, bool plain);
  void move_remote(const Action& action, const Move& move, std::size_t shift, bool plain,
                   CombineOptions& options);
  class Touching;
  /// Of other ranks' memory, between two looks whether the communicator has failed.
  static constexpr std::size_t kTouchedBytes = std::size_t{8} << 20;
  /// After other ranks' memory was read: throws where the communicator has failed. A rank that has
  /// left its call because of a failure may have changed the memory meanwhile.
  void check_still_valid() const {
    std::atomic_thread_fence(std::memory_order_acquire);  // nothing is read after this
    liveness_.throw_if_failed();
  }
  /// The operands are in destinations_ and sources_, scaled. `plain`: a copy, bit for bit.
  void combine_move(const Action& action, const Move& move, bool plain, CombineOptions& options);
  /// The first `destinations` of destinations_, `elements` of what the move has.
  void combine_elements(const Move& move, std::size_t destinations, std::size_t elements,
                        const CombineOptions& options);
  /// Fills targets_; whether one of them can only be reached by copying.
  bool find_targets(const Action& action, const Move& move, std::size_t shift);
  void scale_sources(const Move& move);
  void move_through_copies(const Move& move, const CombineOptions& options);
  std::byte* pointer(const Action& action, const CompiledOperand& operand, std::size_t shift) const;
  Target peer_target(const CompiledOperand& operand, std::size_t bytes, std::size_t shift);
  void accept(const ReceiveLink& link, std::size_t bytes, std::uint32_t tag);
  // Messages that only tell where the sender has the data (pull.cpp).
  /// Whether the message that has come for `action` is of that kind.
  bool is_pulled(const Action& action) const {
    if (binding_->signature.sequence != 0 || action.receives.size() != 1) return false;
    const Receiver& link = *action.receives.front().link;
    return link.tag() == (binding_->tag | kPulledTag) && link.bytes() == sizeof(BufferAddresses);
  }
  /// Copies the tile from the sender's memory. Its message is freed after the last one.
  void pull(const Action& action, std::size_t shift);
  Peer& known(int peer) {
    return peers_.size() == 1 ? peers_.front() : peers_[static_cast<std::size_t>(peer)];
  }
  /// What a signal tells rank `peer` of this rank's buffers.
  BufferAddresses told_to(int peer) const;
  [[noreturn]] void mismatch(int peer, std::size_t bytes, std::uint32_t tag, std::size_t expected);
  void learn(int peer, const std::byte* payload);
  /// `buffer` of rank `peer` lies in `window`, if that is there.
  static void map(Peer::Buffer& buffer, int peer, std::shared_ptr<SharedMemory> window);
  /// tmp of another rank of this process, which stays as long as the result.
  static Peer::Buffer keep(std::byte* tmp, std::uint32_t window);
  void describe_buffers();
  /// Puts staged buffers into the place of so many bytes of the user's, until finish(): the others
  /// cannot address these, though the ranks rely on that (Agreement).
  void stage(std::size_t in, std::size_t out);
  /// What comes after the last step.
  void finish();

  RankGroup& group_;
  Liveness& liveness_ = group_.liveness();
  ControlBlock& control_ = group_.control();
  Workspace& workspace_;
  const bool spans_hosts_ = !group_.one_host();
  std::optional<bool> light_;        // a light_fence() is enough; unknown before it is needed
  std::vector<SendLink> far_sends_;  // to other hosts, of the binding at hand
  std::size_t unrung_ = 0;           // bytes published there, without a doorbell
  std::vector<Doorbell*> unrung_doorbells_;
  struct ZeroCopySend {  // memory from which a message is sent
    OutLink* link;
    std::uint64_t message;
    const std::byte *begin, *end;
    bool is_over() const { return link->has_sent(message); }
    bool touches(const std::byte* other, std::size_t bytes) const {
      return begin < other + bytes && other < end;
    }
  };
  std::vector<ZeroCopySend> zero_copy_sends_;
  HeapHold heap_hold_;  // while the call runs, if a buffer lies there
  bool may_send_input_ = false, may_send_all_ = false;  // in; out and tmp, too
  struct PostedReceive {                                // memory into which a message comes
    InLink* link;
    std::uint64_t message;
    const std::byte* to;
    std::size_t bytes;
    bool is_past() const { return link->receiver().received() >= message; }
  };
  std::vector<PostedReceive> posted_receives_;
  const Binding* binding_ = nullptr;
  // Of the plan that the lanes are set up for; kept, so that its address says that they are.
  std::shared_ptr<const Programs> programs_;
  std::size_t element_ = 1;
  std::size_t tmp_bytes_ = 0;
  Combiner combine_{DataType::uint8, ReduceKind::sum};
  bool scales_ = false;   // the operator multiplies or divides what it reads
  bool divides_ = false;  // it divides the result
  bool canonical_ = false;
  bool stream_ = false;   // as Binding::stream
  std::size_t tile_ = 0;  // with windows: all lanes meet after each tile
  std::vector<Lane> lanes_;
  Binding staged_;  // the binding, with staged buffers
  struct Result {
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  Result result_;                                // of staged_, for the user's output
  std::chrono::steady_clock::time_point begun_;  // where there is a trial
  BufferAddresses mine_{};                       // for ranks in other processes
  BufferAddresses mine_here_{};                  // for ranks in this process
  std::vector<Peer> peers_;  // by rank, from their signals; of a message the only one
  std::byte* tmp_ = nullptr;
  std::uint64_t progress_ = 0;                       // as ControlBlock::progress
  std::atomic<std::uint64_t>* published_ = nullptr;  // where others read it
  std::atomic<std::uint64_t> unpublished_{0};        // a message's, which nobody reads
  // Of the move at hand; kept for their capacity.
  bool past_cache_ = false;  // its messages are written past the cache
  std::vector<Target> targets_;
  std::vector<void*> destinations_;
  std::vector<Source> sources_;
  std::vector<unsigned char> not_plain_sources_;  // a 1 for each that is not
};

inline std::byte* Operation::pointer(const Action& action, const CompiledOperand& p,
                                     std::size_t shift) const {
  const auto link = static_cast<std::size_t>(p.rank);
  switch (p.where) {
    case CompiledOperand::in:
      return binding_->in.base + p.offset + shift;
    case CompiledOperand::out:
      return binding_->out.base + p.offset + shift;
    case CompiledOperand::send:
      return action.sends[link].link->slot(action.bytes_out) + p.offset;
    case CompiledOperand::receive:
      // Only read; sources and destinations share the type of their pointers.
      return const_cast<std::byte*>(action.receives[link].link->slot(action.bytes_in)) + p.offset;
    default:
      return tmp_ + p.offset;
  }
}

}  // namespace tutti

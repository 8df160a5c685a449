// The host executor: one rank's plan, bound to one call, run on a CPU core without ever blocking.
//
// advance() does every step that can be done now and returns; the caller decides how to wait
// (wait.h). So one thread can drive several lanes, several operations of a group, or several ranks.
// What a step moves is the business of three parts: slots and this rank's memory (mover.h), other
// ranks' memory (peer_memory.h), links to other hosts (remote_links.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "execute/host/mover.h"
#include "execute/host/peer_memory.h"
#include "execute/host/remote_links.h"

namespace tutti {

class Operation {
 public:
  Operation(RankGroup& group, Workspace& workspace)
      : group_(group),
        mover_(group.size(), workspace),
        peer_memory_(group, workspace, mover_),
        remote_links_(mover_) {}

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
  ProgramShape shape() const {
    return {binding_->type, binding_->in, binding_->out, binding_->tiling, 1};
  }
  /// The tile that no lane must begin yet, where all lanes meet after each.
  std::size_t limit() const {
    return binding_->windows && !binding_->tiles_by_lane ? tile_ + 1 : SIZE_MAX;
  }
  bool is_done(const LaneState& lane) const { return lane.tile >= std::min(lane.tiles, limit()); }
  void set_up();
  void poll_links();
  /// The link of a message that its receiver has yet to pull; null: there is none.
  const SendLink* unread() const {
    if (!binding_->pulled) return nullptr;
    const SendLink& s = programs_->last.sends.front();
    return s.link->all_received() ? nullptr : &s;
  }
  /// Whether nothing is left once all steps are done.
  bool is_over() const {
    return remote_links_.unsent() == nullptr && unread() == nullptr &&
           (binding_->condition == nullptr || binding_->condition->holds());
  }
  void begin_tile(LaneState& lane) {
    const std::span<const Action> actions = lane.own                      ? compile_tile(lane)
                                            : lane.tile + 1 == lane.tiles ? lane.last
                                                                          : lane.whole;
    lane.first = lane.next = actions.data();
    lane.end = lane.first + actions.size();
  }
  std::span<const Action> compile_tile(LaneState& lane);
  // `shift`: where the tile begins, in bytes from where tile 0 does.
  void perform(const Action& action, std::size_t shift);
  void move(const Action& action, const Move& move, std::size_t shift) {
    if (move.remote) return peer_memory_.move(action, move, shift);
    mover_.move(action, move, shift);
  }
  /// The moves of a step that sends bulk messages.
  void move_bulk(const Action& action, std::size_t shift);
  void signal(const Action& action);
  void accept(const ReceiveLink& link, std::size_t bytes, std::uint32_t tag);
  // Messages that only tell where the sender has the data: the receiver copies from there, without
  // slots. The send is over when the receiver has freed the message. The sender alone decides
  // whether that pays (comm/impl.cpp); the message's tag says so.
  /// Whether the message that has come for `action` is of that kind.
  bool is_pulled(const Action& action) const {
    if (binding_->signature.sequence != 0 || action.receives.size() != 1) return false;
    const Receiver& link = *action.receives.front().link;
    return link.tag() == (binding_->tag | kPulledTag) && link.bytes() == sizeof(BufferAddresses);
  }
  /// Copies the tile from the sender's memory. Its message is freed after the last one.
  void pull(const Action& action, std::size_t shift);
  [[noreturn]] void mismatch(int peer, std::size_t bytes, std::uint32_t tag, std::size_t expected);
  /// What comes after the last step.
  void finish();

  RankGroup& group_;
  Liveness& liveness_ = group_.liveness();
  ControlBlock& control_ = group_.control();
  const bool spans_hosts_ = !group_.one_host();
  Mover mover_;
  PeerMemory peer_memory_;
  RemoteLinks remote_links_;
  const Binding* binding_ = nullptr;
  // Of the plan that the lanes are set up for; kept, so that its address says that they are.
  std::shared_ptr<const Programs> programs_;
  std::size_t tile_ = 0;  // with windows: all lanes meet after each tile
  std::vector<LaneState> lanes_;
  std::chrono::steady_clock::time_point begun_;      // where there is a trial
  std::uint64_t progress_ = 0;                       // as ControlBlock::progress
  std::atomic<std::uint64_t>* published_ = nullptr;  // where others read it
  std::atomic<std::uint64_t> unpublished_{0};        // a message's, which nobody reads
};

}  // namespace tutti

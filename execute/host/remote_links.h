// The part of an operation that serves links to and from other hosts (remote_link.h). It moves long
// messages without a copy at either end: by zero-copy sends, from where a message lies in the
// user's memory, or in tmp, and by posted receives, into the memory to which a step writes.
//
// A message is sent from memory until it has left this process, and an operation is not over before
// that. A step that writes there earlier first copies the unsent rest into the slot that is
// reserved for it. Other ranks of this host write to memory of this one through windows, and copy
// nothing first: so with windows only `in` is sent in this way, because no plan writes it, and not
// if it overlaps `out`.
//
// A receive may be posted when its step is the next of its lane, or when only steps come before it
// that take messages of the same link and touch other memory. Nothing may be on its way out of the
// memory at that time, and nothing is sent from memory into which a receive is posted. Then nothing
// is left that the plan has to do before the step. (A step that also waits for another message may
// have to come after that one: no receive is posted for such a step.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execute/host/mover.h"
#include "transport/network/remote_link.h"
#include "transport/rank_group.h"

namespace tutti {

/// A lane of the plan at hand, and how far it is.
struct LaneState {
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

class RemoteLinks {
 public:
  explicit RemoteLinks(Mover& mover) : mover_(mover) {}

  /// The operation is set up for another plan.
  void forget_sends() { far_sends_.clear(); }
  /// It sends by these.
  void note_sends(std::span<const SendLink> sends);
  /// For the call that the mover is bound to.
  void bind();
  /// A link with messages that have not left this process: the operation is not over before they
  /// have. Null: none.
  const SendLink* unsent() const {
    for (const SendLink& s : far_sends_) {
      if (!remote(*s.doorbell)->is_flushed()) return &s;
    }
    return nullptr;
  }
  /// Does the step, where its messages are sent from memory, or have come into it; false: they are
  /// not.
  bool perform_zero_copy(const Action& action, std::size_t shift);
  /// Copies what has not left yet of the memory that `action` writes.
  void copy_pending_sends(const Action& action, std::size_t shift);
  /// Looks whether what `lanes` wait for has come, where they must not begin tile `limit`; posts
  /// receives of it.
  void poll(std::span<const LaneState> lanes, std::size_t limit);
  /// Rings the doorbells of what `action` has sent: those of other hosts later, when there is more
  /// to send, or nothing else to do.
  void ring_later(const Action& action);
  bool has_unrung() const { return !unrung_doorbells_.empty(); }
  void ring_far();
  /// The memory of the call is the user's again: after its end, and before that.
  void finish() {
    zero_copy_sends_.clear();
    posted_receives_.clear();
  }
  void abandon();

 private:
  struct ZeroCopySend {  // memory from which a message is sent
    OutLink* link;
    std::uint64_t message;
    const std::byte *begin, *end;
    bool is_over() const { return link->has_sent(message); }
    bool touches(const std::byte* other, std::size_t bytes) const {
      return begin < other + bytes && other < end;
    }
  };
  struct PostedReceive {  // memory into which a message comes
    InLink* link;
    std::uint64_t message;
    const std::byte* to;
    std::size_t bytes;
    bool is_past() const { return link->receiver().received() >= message; }
  };
  /// Where a receive of `action`'s only message may be posted; null: nowhere.
  std::byte* receive_buffer(const Action& action, std::size_t shift) const;
  /// The memory from which its messages can be sent; null: there is none.
  const CompiledOperand* send_buffer(const Action& action, std::size_t shift) const;
  /// Posts receives of the messages that `lane` waits for, and of those after them.
  void post_receives(const LaneState& lane, std::size_t limit);
  bool is_being_sent(const std::byte* begin, std::size_t bytes) const;
  bool has_posted_receive(const std::byte* begin, std::size_t bytes) const;

  Mover& mover_;
  std::vector<SendLink> far_sends_;  // to other hosts, of the plan at hand
  std::size_t unrung_ = 0;           // bytes published there, without a doorbell
  std::vector<Doorbell*> unrung_doorbells_;
  std::vector<ZeroCopySend> zero_copy_sends_;
  bool may_send_input_ = false, may_send_all_ = false;  // in; out and tmp, too
  std::vector<PostedReceive> posted_receives_;
};

}  // namespace tutti

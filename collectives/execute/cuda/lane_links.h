// What a block needs of a lane's links: which message a step means and where it lies, waiting for
// messages and for free slots, and how a wait ends when something is wrong. step_logic.h walks the
// lane with it.
//
// A Block is
//
//     std::uint32_t thread(), threads();
//     bool all(bool);               a barrier; whether all threads said true
//     std::uint64_t nanoseconds();  some clock that only goes forward
//     void pause();                 between two looks at something that is not there yet
//     void store_relaxed(p, word), store_pair(p, pair), store_release(p, word): as memory.h's
//
// and of its warps, which must call these together:
//
//     std::uint32_t warp();         threads of a warp, a multiple of eight
//     bool any(bool);               whether one of them said true
//     Pair load_line(p), void store_line(p, pair): 16 bytes of a line that eight threads carry, in
//                                   one access; a null pointer has no part in it
#pragma once

#include <cstdint>

#include "collectives/execute/cuda/combine_links.h"
#include "collectives/execute/cuda/launch.h"

namespace tutti::device {

/// An end of a connection, looked up once in an operation.
struct OpenEnd {
  std::uint64_t first;    // messages of the connection before this operation
  std::uint64_t freed;    // sends: messages that the receiver had freed, when last seen
  std::byte* connection;  // where its headers and slots are
  std::uint64_t* credit;  // sends: in our memory, written by the receiver; else the sender's
};

inline constexpr std::size_t kPlanInShared = 10 << 10;

/// What the threads of a block share (shared memory on the device, of which there are 48 KB).
struct BlockShared {
  OpenEnd ends[kMostEnds];
  Target targets[kMostOperands];  // of the move at hand
  // The whole plan, if it is no larger: read once, all together, as each look into the GPU's memory
  // takes longer than a short message.
  alignas(16) std::byte plan[kPlanInShared];
};
static_assert(sizeof(BlockShared) <= std::size_t{48} << 10);

/// A sender clears the flags of a slot's LL words once in so many messages, long before a 32-bit
/// flag comes round.
inline constexpr std::uint64_t kMessagesPerCleaning = std::uint64_t{1} << 27;

template <class Block>
class LaneLinks {
 protected:
  TUTTI_HD LaneLinks(Block& block, BlockShared& shared, const SegmentShape& shape,
                     const RankLaunch& rank, std::uint32_t index)
      : block_(block),
        shared_(shared),
        shape_(shape),
        rank_(rank),
        base_(read_plan(block, shared, rank)),
        plan_(*reinterpret_cast<const PlanBlock*>(base_)),
        lane_index_(index % plan_.lanes),
        copy_(index / plan_.lanes),
        lane_(array<DeviceLane>(plan_.lane)[lane_index_]),
        ends_(array<End>(plan_.end) + lane_.first_end),
        uses_(array<Use>(plan_.use)),
        state_(reinterpret_cast<State*>(rank.segment)),
        operation_(load_relaxed(&state_->operation)),
        // As the host executor's tag_of(). What is sent and received is numbered by nobody.
        tag_(plan_.messages != 0
                 ? 0
                 : static_cast<std::uint32_t>(
                       ((rank.signature + operation_) * 0xd6e8feb86659fd93ULL) >> 32)) {}

  template <class T>
  TUTTI_HD const T* array(std::uint32_t offset) const {
    return reinterpret_cast<const T*>(base_ + offset);
  }

  /// Where the plan is to be read.
  static TUTTI_HD const std::byte* read_plan(Block& block, BlockShared& shared,
                                             const RankLaunch& rank) {
    if (rank.plan_bytes > kPlanInShared) return rank.plan;
    for (std::uint32_t at = 16 * block.thread(); at < rank.plan_bytes; at += 16 * block.threads()) {
      store_16(shared.plan + at, load_16(rank.plan + at));
    }
    block.all(true);
    return shared.plan;
  }

  // --- Connections -------------------------------------------------------------------------------

  /// The channel of this copy: copies of a plan do not share connections.
  TUTTI_HD std::uint32_t channel(const End& end) const {
    return copy_ * plan_.plan_channels + end.channel;
  }
  /// Messages so far at this end; touched by this lane alone, so plain.
  TUTTI_HD std::uint64_t* number(const End& end) const {
    auto* all = reinterpret_cast<std::uint64_t*>(
        rank_.segment + (end.sends != 0 ? shape_.sent() : shape_.received()));
    return all + shape_.index(end.peer, channel(end));
  }
  /// A thread for each end.
  TUTTI_HD void open_ends() {
    for (std::uint32_t e = block_.thread(); e < lane_.ends; e += block_.threads()) {
      const End& end = ends_[e];
      const std::uint32_t c = channel(end);
      std::byte* const theirs = rank_.segments[end.peer];
      OpenEnd& open = shared_.ends[e];
      open.first = *number(end);
      if (end.sends != 0) {
        open.connection = theirs + shape_.connection(rank_.rank, c);
        open.credit = reinterpret_cast<std::uint64_t*>(rank_.segment + shape_.credit(end.peer, c));
        // acquire: our stores into free slots come after the receiver's loads.
        open.freed = load_acquire(open.credit);
      } else {
        open.connection = rank_.segment + shape_.connection(end.peer, c);
        open.credit = reinterpret_cast<std::uint64_t*>(theirs + shape_.credit(rank_.rank, c));
        open.freed = 0;
      }
    }
  }
  /// The number of a message, from 1.
  TUTTI_HD std::uint64_t message(const Use& use) const {
    return shared_.ends[use.end].first + std::uint64_t{round_} * ends_[use.end].per_tile +
           use.ordinal + 1;
  }
  TUTTI_HD std::uint32_t slot(std::uint64_t message) const {
    return static_cast<std::uint32_t>(message) & (shape_.slots - 1);
  }
  TUTTI_HD std::uint64_t* header(const Use& use) const {
    return reinterpret_cast<std::uint64_t*>(shared_.ends[use.end].connection +
                                            shape_.header(slot(message(use))));
  }
  /// What the header of a message says: its number, and a word in which both sides must agree.
  TUTTI_HD std::uint64_t header_of(const Use& use, const DeviceAction& action) const {
    const std::uint64_t check = tag_ + action.check;  // 32 bits, so it comes round
    return check << 32 | static_cast<std::uint32_t>(message(use));
  }
  TUTTI_HD std::uint64_t* signal_payload(const Use& use) const {
    return reinterpret_cast<std::uint64_t*>(shared_.ends[use.end].connection +
                                            shape_.simple(slot(message(use))));
  }

  // --- Waiting -----------------------------------------------------------------------------------

  TUTTI_HD bool wait_for_message(const Use& use, const DeviceAction& a) {
    const std::uint64_t* at = header(use);
    const std::uint64_t expected = header_of(use, a);
    for (;;) {
      // acquire: pairs with the release that publishes it.
      const std::uint64_t found = load_acquire(at);
      if (found == expected) return true;
      if (static_cast<std::uint32_t>(found) == static_cast<std::uint32_t>(expected)) {
        return fail(Trouble::mismatch, use, expected, found);
      }
      if (!look_again(use)) return false;
    }
  }

  /// LL, LL128: until the header is there and says what it should; the data was. `found`: what it
  /// said before the data was waited for.
  TUTTI_HD bool confirm(const Use& use, const DeviceAction& a, std::uint64_t found) {
    const std::uint64_t expected = header_of(use, a);
    while (found != expected) {
      if (static_cast<std::uint32_t>(found) == static_cast<std::uint32_t>(expected)) {
        return fail(Trouble::mismatch, use, expected, found);
      }
      if (!look_again(use)) return false;
      // relaxed: it is only compared.
      found = load_relaxed(header(use));
    }
    return true;
  }

  /// LL: false if the header of the message that is waited for is there, and another one.
  TUTTI_HD bool matches(const Use& use, const DeviceAction& a) {
    const std::uint64_t expected = header_of(use, a);
    const std::uint64_t found = load_relaxed(header(use));
    if (found == expected ||
        static_cast<std::uint32_t>(found) != static_cast<std::uint32_t>(expected)) {
      return true;
    }
    return fail(Trouble::mismatch, use, expected, found);
  }

  TUTTI_HD bool wait_for_slot(const Use& use) {
    const std::uint64_t number = message(use);
    OpenEnd& end = shared_.ends[use.end];
    while (number - end.freed > shape_.slots) {
      // acquire: our stores into free slots come after the receiver's loads.
      end.freed = load_acquire(end.credit);
      if (number - end.freed > shape_.slots && !look_again(use)) return false;
    }
    return true;
  }

  /// Once in kMessagesPerCleaning messages of a connection: every LL word of the slot gets the flag
  /// of the slot's message before, so that none keeps one for 2^32 messages.
  TUTTI_HD void clean_slots(const DeviceAction& a) {
    const Use* sends = uses_ + a.first_send;
    bool cleaned = false;
    for (std::uint32_t i = 0; i < a.sends; ++i) {
      const std::uint64_t number = message(sends[i]);
      if (number < kMessagesPerCleaning || number % kMessagesPerCleaning >= shape_.slots) continue;
      cleaned = true;
      auto* words = reinterpret_cast<std::uint64_t*>(shared_.ends[sends[i].end].connection +
                                                     shape_.ll(slot(number)));
      const std::uint64_t old = (number - shape_.slots) << 32;
      const std::uint32_t pairs = shape_.ll_bytes / 16;
      for (std::uint32_t p = block_.thread(); p < pairs; p += block_.threads()) {
        block_.store_pair(words + 2 * p, {old, old});
      }
    }
    if (cleaned) block_.all(true);  // before this message's words
  }

  // --- Failing -----------------------------------------------------------------------------------

  /// After a look in vain: whether to look again. Other blocks of this rank and the host are asked
  /// now and then only; theirs is memory that others need, or behind a bus.
  TUTTI_HD bool look_again(const Use& use, bool own_lanes = false) {
    block_.pause();
    ++looks_;
    if (looks_ % 64 != 0) return true;
    if (load_relaxed(&state_->failed) != 0) return false;
    if (looks_ % 1024 != 0) return true;
    Control& control = *rank_.control;
    if (load_relaxed(&control.abort) != 0) return false;
    const std::uint64_t timeout = load_relaxed(&control.timeout_ns);
    const std::uint64_t now = block_.nanoseconds();
    if (looks_ == 1024) {
      began_ = now;
      told_ = false;
    }
    const std::uint64_t late = load_relaxed(&control.late_ns);
    if (late != 0 && now - began_ > late && !told_) tell(use, own_lanes);
    if (timeout != 0 && now - began_ > timeout) {
      if (own_lanes) return report(Trouble::timed_out, rank_.rank, false, 0, 0);
      return fail(Trouble::timed_out, use, 0, 0);
    }
    return true;
  }

  /// False, so that it can be returned.
  TUTTI_HD bool fail(Trouble trouble, const Use& use, std::uint64_t expected, std::uint64_t found) {
    const End& end = ends_[use.end];
    return report(trouble, end.peer, end.sends != 0, expected, found);
  }

  TUTTI_HD bool report(Trouble trouble, std::uint32_t peer, bool sending, std::uint64_t expected,
                       std::uint64_t found) {
    if (claim(&state_->failed, 1)) {
      write(rank_.control->report, trouble, peer, sending, expected, found);
    }
    return false;
  }

  /// A long wait, once; unless the host has not read another one yet.
  TUTTI_HD void tell(const Use& use, bool own_lanes) {
    told_ = true;
    if (!claim(&state_->telling, 1)) return;
    Report& r = rank_.control->late;
    if (load_acquire(&r.trouble) == static_cast<std::uint64_t>(Trouble::none)) {
      const End& end = ends_[use.end];
      write(r, Trouble::late, own_lanes ? rank_.rank : end.peer, !own_lanes && end.sends != 0, 0,
            0);
    }
    // release: who claims it next sees the report.
    store_release(&state_->telling, 0);
  }

  TUTTI_HD void write(Report& r, Trouble trouble, std::uint32_t peer, bool sending,
                      std::uint64_t expected, std::uint64_t found) {
    store_relaxed(&r.messages, plan_.messages);
    store_relaxed(&r.operation, operation_);
    store_relaxed(&r.lane, lane_index_);
    store_relaxed(&r.copy, copy_);
    store_relaxed(&r.tile, tile_);
    store_relaxed(&r.step, step_);
    store_relaxed(&r.peer, peer);
    store_relaxed(&r.sending, sending ? 1 : 0);
    store_relaxed(&r.expected, expected);
    store_relaxed(&r.found, found);
    // release: the host reads the rest after this.
    store_release(&r.trouble, static_cast<std::uint64_t>(trouble));
  }

  Block& block_;
  BlockShared& shared_;
  const SegmentShape& shape_;
  const RankLaunch& rank_;
  const std::byte* const base_;
  const PlanBlock& plan_;
  const std::uint32_t lane_index_;
  const std::uint32_t copy_;
  const DeviceLane& lane_;
  const End* const ends_;
  const Use* const uses_;
  State* const state_;
  const std::uint64_t operation_;
  const std::uint32_t tag_;
  std::uint32_t tile_ = 0;
  std::uint32_t round_ = 0;  // tiles of this copy before this one
  std::uint32_t step_ = 0;
  std::uint32_t looks_ = 0;
  std::uint64_t began_ = 0;
  bool told_ = false;
};

}  // namespace tutti::device

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
#include "collectives/execute/cuda/trouble.h"

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
  // What the block walks; here rather than in registers, which the moves need. The compiler would
  // keep all that follows from the kernel's parameters in registers as well, so they are here too.
  SegmentShape shape;
  RankLaunch rank;
  const std::byte* base;  // of the plan
  const DeviceLane* lane;
  const End* lane_ends;
  const Use* uses;
  std::uint64_t operation;
  std::uint32_t lane_index, copy, tag;

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
      : block_(block), shared_(shared), shape_(shared.shape), rank_(shared.rank) {
    copy_words(shared.shape, shape);
    copy_words(shared.rank, rank);
    const bool fits = rank.plan_bytes <= kPlanInShared;
    TUTTI_NO_UNROLL
    for (std::uint32_t at = 16 * block.thread(); fits && at < rank.plan_bytes;
         at += 16 * block.threads()) {
      store_16(shared.plan + at, load_16(rank.plan + at));
    }
    if (block.thread() == 0) {
      shared.base = fits ? shared.plan : rank.plan;
      shared.operation = load_relaxed(&reinterpret_cast<State*>(rank.segment)->operation);
    }
    block.all(true);
    if (block.thread() == 0) {
      shared.lane_index = index % plan().lanes;
      shared.copy = index / plan().lanes;
      // As the host executor's tag_of(). What is sent and received is numbered by nobody.
      shared.tag = plan().messages != 0
                       ? 0
                       : static_cast<std::uint32_t>(
                             ((rank.signature + shared.operation) * 0xd6e8feb86659fd93ULL) >> 32);
      const DeviceLane& lane = array<DeviceLane>(plan().lane)[shared.lane_index];
      shared.lane = &lane;
      shared.lane_ends = array<End>(plan().end) + lane.first_end;
      shared.uses = array<Use>(plan().use);
    }
    block.all(true);
  }

  /// To shared memory, by all threads.
  template <class T>
  TUTTI_HD void copy_words(T& to, const T& from) const {
    static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
    const auto* words = reinterpret_cast<const std::uint32_t*>(&from);
    TUTTI_NO_UNROLL
    for (std::uint32_t i = block_.thread(); i < sizeof(T) / sizeof *words; i += block_.threads()) {
      reinterpret_cast<std::uint32_t*>(&to)[i] = words[i];
    }
  }

  TUTTI_HD const PlanBlock& plan() const {
    return *reinterpret_cast<const PlanBlock*>(shared_.base);
  }
  TUTTI_HD const DeviceLane& lane() const { return *shared_.lane; }
  TUTTI_HD const End& end_of(const Use& use) const { return shared_.lane_ends[use.end]; }
  TUTTI_HD State* state() const { return reinterpret_cast<State*>(rank_.segment); }

  template <class T>
  TUTTI_HD const T* array(std::uint32_t offset) const {
    return reinterpret_cast<const T*>(shared_.base + offset);
  }

  // --- Connections -------------------------------------------------------------------------------

  /// The channel of this copy: copies of a plan do not share connections.
  TUTTI_HD std::uint32_t channel(const End& end) const {
    if (plan().messages != 0) return end.channel;
    return shape_.plan_channel(shared_.copy * plan().plan_channels + end.channel);
  }
  /// Messages so far at this end; touched by this lane alone, so plain.
  TUTTI_HD std::uint64_t* number(const End& end) const {
    auto* all = reinterpret_cast<std::uint64_t*>(
        rank_.segment + (end.sends != 0 ? shape_.sent() : shape_.received()));
    return all + shape_.index(end.peer, channel(end));
  }
  /// A thread for each end.
  TUTTI_HD void open_ends() {
    TUTTI_NO_UNROLL
    for (std::uint32_t e = block_.thread(); e < lane().ends; e += block_.threads()) {
      const End& end = shared_.lane_ends[e];
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
    return shared_.ends[use.end].first + std::uint64_t{round_} * end_of(use).per_tile +
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
    const std::uint64_t check = shared_.tag + action.check;  // 32 bits, so it comes round
    return check << 32 | static_cast<std::uint32_t>(message(use));
  }
  TUTTI_HD std::uint64_t* signal_payload(const Use& use) const {
    const std::uint32_t s = slot(message(use));
    return reinterpret_cast<std::uint64_t*>(
        shared_.ends[use.end].connection +
        (shape_.only_signals(channel(end_of(use))) ? shape_.signal(s) : shape_.simple(s)));
  }

  // --- Waiting -----------------------------------------------------------------------------------

  TUTTI_HD bool wait_for_message(const Use& use, const DeviceAction& a) {
    const std::uint64_t* at = header(use);
    const std::uint64_t expected = header_of(use, a);
    TUTTI_NO_UNROLL
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
    const Use* sends = shared_.uses + a.first_send;
    bool cleaned = false;
    TUTTI_NO_UNROLL
    for (std::uint32_t i = 0; i < a.sends; ++i) {
      const std::uint64_t number = message(sends[i]);
      if (number < kMessagesPerCleaning || number % kMessagesPerCleaning >= shape_.slots) continue;
      cleaned = true;
      auto* words = reinterpret_cast<std::uint64_t*>(shared_.ends[sends[i].end].connection +
                                                     shape_.ll(slot(number)));
      const std::uint64_t old = (number - shape_.slots) << 32;
      const std::uint32_t pairs = shape_.ll_bytes / 16;
      TUTTI_NO_UNROLL
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
    if (load_relaxed(&state()->failed) != 0) return false;
    if (looks_ % 1024 != 0) return true;
    if (looks_ == 1024) {
      began_ = block_.nanoseconds();
      told_ = false;
    }
    const Verdict v =
        judge(rank_.control, state(), spot(use, own_lanes), block_.nanoseconds() - began_, told_);
    told_ = v.told;
    return v.go_on;
  }

  /// False, so that it can be returned.
  TUTTI_HD bool fail(Trouble trouble, const Use& use, std::uint64_t expected, std::uint64_t found) {
    report_failure(rank_.control, state(), spot(use, false), trouble, expected, found);
    return false;
  }
  /// A peer names memory that it does not have.
  TUTTI_HD void fail_window(std::uint32_t peer, std::uint64_t expected, std::uint64_t found) {
    Spot here = spot({}, true);
    here.peer = peer;
    report_failure(rank_.control, state(), here, Trouble::window, expected, found);
  }

  /// `own_lanes`: it waits for this rank's own blocks.
  TUTTI_HD Spot spot(const Use& use, bool own_lanes) const {
    Spot s{shared_.operation,
           plan().messages,
           shared_.lane_index,
           shared_.copy,
           tile_,
           step_,
           rank_.rank,
           0,
           own_lanes ? 1u : 0u};
    if (own_lanes) return s;
    s.peer = end_of(use).peer;
    s.sending = end_of(use).sends;
    return s;
  }

  Block& block_;
  BlockShared& shared_;
  const SegmentShape& shape_;
  const RankLaunch& rank_;
  std::uint32_t tile_ = 0;
  std::uint32_t round_ = 0;  // tiles of this copy before this one
  std::uint32_t step_ = 0;
  std::uint32_t looks_ = 0;
  std::uint64_t began_ = 0;
  bool told_ = false;
};

}  // namespace tutti::device

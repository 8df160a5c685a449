// The CUDA executor's step logic: how one thread block carries out one copy of one lane of a plan.
// Written once for the device and for the host, where the tests run it with a few threads per
// "block".
//
// A Block is
//
//     std::uint32_t thread(), threads();
//     bool all(bool);               a barrier; whether all threads said true
//     std::uint64_t nanoseconds();  some clock that only goes forward
//     void pause();                 between two looks at something that is not there yet
//
// A step goes: wait for messages and free slots (a thread for each link) | barrier | move | barrier
// | publish and free (a thread for each link). Which message of a connection a step means follows
// from the plan and the number that the connection had when the operation began; no counter is
// written before the end of the operation.
#pragma once

#include <cstdint>

#include "collectives/execute/cuda/combine_move.h"
#include "collectives/execute/cuda/launch.h"

namespace tutti::device {

/// What the threads of a block share (shared memory on the device).
struct BlockShared {
  std::uint64_t first[kMostEnds];   // messages of each connection before this operation
  std::uint64_t credit[kMostEnds];  // sends: messages that the receiver had freed, when last seen
  Target targets[kMostOperands];    // of the move at hand
};

/// A sender clears the flags of a slot's LL words once in so many messages, long before a 32-bit
/// flag comes round.
inline constexpr std::uint64_t kMessagesPerCleaning = std::uint64_t{1} << 27;

template <class E, class Block>
class LaneWalk {
 public:
  TUTTI_HD LaneWalk(Block& block, BlockShared& shared, const SegmentShape& shape,
                    const RankLaunch& rank, std::uint32_t index)
      : block_(block),
        shared_(shared),
        shape_(shape),
        rank_(rank),
        plan_(*reinterpret_cast<const PlanBlock*>(rank.plan)),
        lane_index_(index % plan_.lanes),
        copy_(index / plan_.lanes),
        lane_(array<DeviceLane>(plan_.lane)[lane_index_]),
        ends_(array<End>(plan_.end) + lane_.first_end),
        uses_(array<Use>(plan_.use)),
        state_(reinterpret_cast<State*>(rank.segment)),
        operation_(load_relaxed(&state_->operation)),
        // As the host executor's tag_of().
        tag_(static_cast<std::uint32_t>(((rank.signature + operation_) * 0xd6e8feb86659fd93ULL) >>
                                        32)) {}

  /// The whole lane. After a failure it returns early; the communicator is of no use then.
  TUTTI_HD void run() {
    if (!block_.all(load_relaxed(&state_->failed) == 0)) return;
    for (std::uint32_t e = block_.thread(); e < lane_.ends; e += block_.threads()) {
      shared_.first[e] = *number(ends_[e]);
      // acquire: our stores into free slots come after the receiver's loads.
      shared_.credit[e] = ends_[e].sends != 0 ? load_acquire(credit(ends_[e])) : 0;
    }
    block_.all(true);
    const Range* range = array<Range>(plan_.range) + lane_.first_range;
    std::uint32_t ranges = lane_.ranges;
    for (tile_ = copy_; tile_ < lane_.tiles; tile_ += plan_.copies, ++round_) {
      while (ranges > 1 && range[1].first_tile <= tile_) {
        ++range;
        --ranges;
      }
      const DeviceAction* actions = array<DeviceAction>(plan_.action) + range->first_action;
      for (step_ = 0; step_ < lane_.actions; ++step_) {
        if (!perform(actions[step_])) return;
      }
      if (plan_.windows != 0 && plan_.lanes > 1 && !meet()) return;
    }
    for (std::uint32_t e = block_.thread(); e < lane_.ends; e += block_.threads()) {
      *number(ends_[e]) = shared_.first[e] + std::uint64_t{round_} * ends_[e].per_tile;
    }
    finish();
  }

 private:
  template <class T>
  TUTTI_HD const T* array(std::uint32_t offset) const {
    return reinterpret_cast<const T*>(rank_.plan + offset);
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
  /// Of a sending end: in our memory, written by the receiver; of a receiving end: the sender's.
  TUTTI_HD std::uint64_t* credit(const End& end) const {
    std::byte* segment = end.sends != 0 ? rank_.segment : rank_.segments[end.peer];
    const std::uint32_t writer = end.sends != 0 ? end.peer : rank_.rank;
    return reinterpret_cast<std::uint64_t*>(segment + shape_.credit(writer, channel(end)));
  }
  TUTTI_HD std::byte* connection(const End& end) const {
    std::byte* segment = end.sends != 0 ? rank_.segments[end.peer] : rank_.segment;
    const std::uint32_t sender = end.sends != 0 ? rank_.rank : end.peer;
    return segment + shape_.connection(sender, channel(end));
  }
  /// The number of a message, from 1.
  TUTTI_HD std::uint64_t message(const Use& use) const {
    return shared_.first[use.end] + std::uint64_t{round_} * ends_[use.end].per_tile + use.ordinal +
           1;
  }
  TUTTI_HD std::uint32_t slot(std::uint64_t message) const {
    return static_cast<std::uint32_t>(message % shape_.slots);
  }
  TUTTI_HD std::uint64_t* header(const Use& use) const {
    return reinterpret_cast<std::uint64_t*>(connection(ends_[use.end]) +
                                            shape_.header(slot(message(use))));
  }
  /// What the header of a message says: its number, and a word in which both sides must agree.
  TUTTI_HD std::uint64_t header_of(const Use& use, const DeviceAction& action) const {
    const std::uint64_t check = tag_ + action.bytes * 0x9E3779B1u;
    return check << 32 | static_cast<std::uint32_t>(message(use));
  }
  /// Whether `action`'s messages are ordered: the header comes after the data.
  TUTTI_HD bool is_ordered(const DeviceAction& action) const {
    return plan_.protocol == Protocol::simple || action.signals != 0;
  }
  TUTTI_HD std::uint64_t* signal_payload(const Use& use) const {
    return reinterpret_cast<std::uint64_t*>(connection(ends_[use.end]) +
                                            shape_.simple(slot(message(use))));
  }

  // --- Steps -------------------------------------------------------------------------------------

  TUTTI_HD bool perform(const DeviceAction& a) {
    const bool ordered = is_ordered(a);
    const Use* receives = uses_ + a.first_receive;
    const Use* sends = uses_ + a.first_send;
    const DeviceMove* moves = array<DeviceMove>(plan_.move) + a.first_move;
    looks_ = 0;
    bool fine = a.moves == 0 || resolve(a, moves[0]);
    for (std::uint32_t i = block_.thread(); i < a.receives && ordered; i += block_.threads()) {
      fine = fine && wait_for_message(receives[i], a);
    }
    for (std::uint32_t i = block_.thread(); i < a.sends; i += block_.threads()) {
      fine = fine && wait_for_slot(sends[i]);
      // relaxed: it announces nothing, it is there to be compared.
      if (fine && !ordered) store_relaxed(header(sends[i]), header_of(sends[i], a));
    }
    if (!block_.all(fine)) return false;
    clean_slots(a);
    for (std::uint32_t i = 0; i < a.moves; ++i) {
      if (i > 0) {
        block_.all(true);  // everybody is done with the targets
        if (!block_.all(resolve(a, moves[i]))) return false;
      }
      fine = move(a, moves[i]) && fine;
    }
    for (std::uint32_t i = block_.thread(); i < a.receives && !ordered; i += block_.threads()) {
      fine = fine && wait_for_message(receives[i], a);
    }
    // The barrier, and the releases below after it, order what all threads of the block did.
    if (!block_.all(fine)) return false;
    for (std::uint32_t i = block_.thread(); i < a.sends && ordered; i += block_.threads()) {
      if (a.signals != 0 && plan_.windows != 0) tell_addresses(signal_payload(sends[i]));
      // release: the data, and through windows everything that this lane did, comes before.
      store_release(header(sends[i]), header_of(sends[i], a));
    }
    for (std::uint32_t i = block_.thread(); i < a.receives; i += block_.threads()) {
      // release: our loads of the slot come before the sender's next stores into it.
      store_release(credit(ends_[receives[i].end]), message(receives[i]));
    }
    return true;
  }

  TUTTI_HD bool wait_for_message(const Use& use, const DeviceAction& a) {
    const std::uint64_t* at = header(use);
    const std::uint64_t expected = header_of(use, a);
    for (;;) {
      // acquire: pairs with the release in perform().
      const std::uint64_t found = load_acquire(at);
      if (found == expected) break;
      if (static_cast<std::uint32_t>(found) == static_cast<std::uint32_t>(expected)) {
        return fail(Trouble::mismatch, use, expected, found);
      }
      if (!look_again(use)) return false;
    }
    if (a.signals != 0 && plan_.windows != 0) return learn(use);
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
    while (number - shared_.credit[use.end] > shape_.slots) {
      // acquire: as in run().
      shared_.credit[use.end] = load_acquire(credit(ends_[use.end]));
      if (number - shared_.credit[use.end] > shape_.slots && !look_again(use)) return false;
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
      auto* words = reinterpret_cast<std::uint64_t*>(connection(ends_[sends[i].end]) +
                                                     shape_.ll(slot(number)));
      const std::uint64_t old = (number - shape_.slots) << 32;
      const std::uint32_t pairs = shape_.ll_bytes / 16;
      for (std::uint32_t p = block_.thread(); p < pairs; p += block_.threads()) {
        store_pair(words + 2 * p, {old, old});
      }
    }
    if (cleaned) block_.all(true);  // before this message's words
  }

  // --- Windows -----------------------------------------------------------------------------------

  TUTTI_HD void tell_addresses(std::uint64_t* payload) const {
    const auto* words = reinterpret_cast<const std::uint64_t*>(&rank_.addresses);
    for (std::size_t i = 0; i < kAddressWords; ++i) payload[i] = words[i];
    payload[2] += copy_ * plan_.tmp_stride;  // which differs from rank to rank
  }

  TUTTI_HD std::uint64_t* peer_words(std::uint32_t peer) const {
    return reinterpret_cast<std::uint64_t*>(rank_.segment + shape_.peers() +
                                            sizeof(PeerBuffers) * shape_.index(peer, copy_));
  }

  /// Makes the payload of a signal ours. Every lane that hears from a peer hears the same, so the
  /// words are written relaxed, more than once.
  TUTTI_HD bool learn(const Use& use) {
    const std::uint32_t peer = ends_[use.end].peer;
    const std::uint64_t* payload = signal_payload(use);
    const std::uint64_t ids[3] = {payload[3] & 0xFFFFFFFFu, payload[3] >> 32, payload[4]};
    const auto* windows = reinterpret_cast<const Window*>(rank_.segment + shape_.windows()) +
                          std::size_t{peer} * kMostWindows;
    std::uint64_t* words = peer_words(peer);
    for (int i = 0; i < 3; ++i) {
      std::uint64_t base = payload[i];
      std::uint64_t bytes = ~std::uint64_t{0};
      if (ids[i] != 0) {
        if (ids[i] >= kMostWindows || payload[i] > windows[ids[i]].bytes) {
          return fail(Trouble::window, use, ids[i], payload[i]);
        }
        base = windows[ids[i]].base + payload[i];
        bytes = windows[ids[i]].bytes - payload[i];
      }
      store_relaxed(words + i, base);
      store_relaxed(words + 3 + i, bytes);
    }
    store_relaxed(words + 6, payload[5]);
    return true;
  }

  /// Lanes of a copy that write into other ranks' memory meet after each tile, as on the host.
  TUTTI_HD bool meet() {
    const std::uint64_t here = (operation_ << 24) + round_ + 1;
    const std::uint32_t first = copy_ * plan_.lanes;
    // release after the barrier at the end of the last step; acquire below.
    if (block_.thread() == 0) store_release(progress(first + lane_index_), here);
    bool fine = true;
    looks_ = 0;
    for (std::uint32_t l = block_.thread(); l < plan_.lanes; l += block_.threads()) {
      while (fine && load_acquire(progress(first + l)) < here) fine = look_again({0, 0}, true);
    }
    return block_.all(fine);
  }
  TUTTI_HD std::uint64_t* progress(std::uint32_t block) const {
    return reinterpret_cast<std::uint64_t*>(rank_.segment + shape_.progress(block));
  }

  // --- Moves -------------------------------------------------------------------------------------

  /// Where the operands of `m` are; a thread for each.
  TUTTI_HD bool resolve(const DeviceAction& a, const DeviceMove& m) {
    const auto* places = array<DevicePlace>(plan_.place) + m.first_place;
    const std::uint32_t operands = std::uint32_t{m.destinations} + m.sources;
    bool fine = true;
    for (std::uint32_t k = block_.thread(); k < operands; k += block_.threads()) {
      Target t = target(a, places[k], m.bytes);
      if (t.pointer == nullptr) fine = false;
      if (k >= m.destinations && places[k].scaled != 0) scale(t, places[k]);
      shared_.targets[k] = t;
    }
    return fine;
  }

  TUTTI_HD Target target(const DeviceAction& a, const DevicePlace& p, std::uint64_t bytes) {
    Target t;
    const std::uint64_t shift = tile_ * plan_.tile_stride;
    switch (p.where) {
      case Place::Where::in:
        t.pointer = rank_.in + p.offset + shift;
        break;
      case Place::Where::out:
        t.pointer = rank_.out + p.offset + shift;
        break;
      case Place::Where::tmp:
        t.pointer = rank_.tmp + p.offset + copy_ * plan_.tmp_stride;
        break;
      case Place::Where::send:
      case Place::Where::receive: {
        const std::uint32_t first = p.where == Place::Where::send ? a.first_send : a.first_receive;
        t.use = first + static_cast<std::uint32_t>(p.rank);
        const Use& use = uses_[t.use];
        const std::uint32_t s = slot(message(use));
        std::byte* const slots = connection(ends_[use.end]);
        t.flag = message(use);
        t.linked = 1;
        if (plan_.protocol == Protocol::ll) {
          t.pointer = slots + shape_.ll(s) + p.offset * 2;
        } else if (plan_.protocol == Protocol::ll128) {
          t.pointer = slots + shape_.ll128(s) + p.offset / 120 * 128;
        } else {
          t.pointer = slots + shape_.simple(s) + p.offset;
          t.linked = 0;
        }
        break;
      }
      default: {
        const auto which =
            static_cast<std::uint32_t>(p.where) - static_cast<std::uint32_t>(Place::Where::peer_in);
        const std::uint64_t* words = peer_words(static_cast<std::uint32_t>(p.rank));
        const std::uint64_t at = p.offset + (p.where == Place::Where::peer_tmp ? 0 : shift);
        const std::uint64_t limit = load_relaxed(words + 3 + which);
        if (at > limit || bytes > limit - at) {
          report(Trouble::window, static_cast<std::uint32_t>(p.rank), false, limit, at + bytes);
          return t;
        }
        t.pointer = reinterpret_cast<std::byte*>(load_relaxed(words + which) + at);
      }
    }
    return t;
  }

  /// A raw input of a reduction is divided or multiplied as it is read.
  TUTTI_HD void scale(Target& t, const DevicePlace& p) const {
    if (rank_.kind == ReduceKind::avg && std::is_floating_point_v<typename E::Wide>) {
      t.scaling = Scaling::divide;
    } else if (rank_.kind == ReduceKind::pre_multiplied_sum) {
      t.scaling = Scaling::multiply;
      t.scalar = p.where == Place::Where::in
                     ? rank_.scalar
                     : load_relaxed(peer_words(static_cast<std::uint32_t>(p.rank)) + 6);
    }
  }

  TUTTI_HD bool move(const DeviceAction& a, const DeviceMove& m) {
    MoveArguments arguments;
    arguments.targets = shared_.targets;
    arguments.destinations = m.destinations;
    arguments.sources = m.sources;
    arguments.bytes = m.bytes;
    arguments.reduction.kind = rank_.kind;
    arguments.reduction.divisor = plan_.divisor;
    arguments.reduction.divide_result = plan_.reduction != 0 && a.completes != 0 &&
                                        rank_.kind == ReduceKind::avg &&
                                        std::is_integral_v<typename E::Wide>;
    const auto wait = [&](const Target& t) {
      return look_again(uses_[t.use]) && (looks_ % 1024 != 0 || matches(uses_[t.use], a));
    };
    if (is_ordered(a) || a.receives + a.sends == 0) {
      move_memory<E>(arguments, block_.thread(), block_.threads());
      return true;
    }
    if (plan_.protocol == Protocol::ll) {
      return move_ll<E>(arguments, block_.thread(), block_.threads(), wait);
    }
    return move_ll128<E>(arguments, block_.thread(), block_.threads(), wait);
  }

  // --- Waiting and failing -----------------------------------------------------------------------

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
    if (looks_ == 1024) began_ = now;
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
    if (!claim(&state_->failed, 1)) return false;
    Report& r = rank_.control->report;
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
    return false;
  }

  /// The last block of a rank counts the operation. The number comes from memory and not from the
  /// launch, so that a captured graph replays for ever. `arrived` starts over, but only for the
  /// next operation, which begins after all blocks of this one have ended.
  TUTTI_HD void finish() {
    if (block_.thread() != 0) return;
    // For lanes that still meet: this one has done all its tiles.
    store_release(progress(copy_ * plan_.lanes + lane_index_), (operation_ << 24) + 0xFFFFFF);
    const std::uint64_t blocks = std::uint64_t{plan_.lanes} * plan_.copies;
    if (fetch_add(&state_->arrived, 1) + 1 < blocks) return;
    store_relaxed(&state_->arrived, 0);
    store_relaxed(&state_->operation, operation_ + 1);
  }

  Block& block_;
  BlockShared& shared_;
  const SegmentShape& shape_;
  const RankLaunch& rank_;
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
  std::uint32_t round_ = 0;
  std::uint32_t step_ = 0;
  std::uint32_t looks_ = 0;
  std::uint64_t began_ = 0;
};

/// Block `index` of a launch.
template <class E, class Block>
TUTTI_HD void run_block(Block& block, BlockShared& shared, const Launch& launch,
                        std::uint32_t index) {
  std::uint32_t r = launch.ranks - 1;
  while (launch.rank[r].first_block > index) --r;
  const RankLaunch& rank = launch.rank[r];
  LaneWalk<E, Block>(block, shared, launch.shape, rank, index - rank.first_block).run();
}

}  // namespace tutti::device

// The CUDA executor's step logic: how one thread block carries out one copy of one lane of a plan.
// Written once for the device and for the host, where the tests run it with a few threads per
// "block".
//
// A step goes: wait for messages and free slots (a thread for each link) | barrier | move | barrier
// | publish and free (a thread for each link). Which message of a connection a step means follows
// from the plan and the number that the connection had when the operation began; no counter is
// written before the end of the operation.
#pragma once

#include <cstdint>

#include "execute/cuda/lane_links.h"

namespace tutti::device {

/// Of what the kernel `kKind` has no use for, nothing is compiled.
template <class E, class Block, KernelKind kKind>
class LaneWalk : LaneLinks<Block, kKind> {
 public:
  TUTTI_HD LaneWalk(Block& block, BlockShared& shared, const SegmentLayout& shape,
                    const RankLaunch& rank, std::uint32_t index)
      : Links(block, shared, shape, rank, index) {}

  /// The whole lane. After a failure it returns early; the communicator is of no use then.
  TUTTI_HD void run() {
    block_.all(true);
    if (shared_.failed != 0) return;
    if (!kWords && plan().shares_tiles != 0) {
      const std::uint32_t drawn = block_.draw(&state()->turns);
      if (block_.thread() % block_.warp() == 0) {
        shared_.turns[block_.thread() / block_.warp()] = {shared_.first_turn, drawn};
      }
    }
    TUTTI_NO_UNROLL
    for (range_ = 0; range_ < lane().ranges; ++range_) {
      if (!walk()) return;
    }
    TUTTI_NO_UNROLL
    for (std::uint32_t e = task(); e < lane().ends; e += block_.threads()) {
      const OpenEnd& open = shared_.ends[e];
      const End& end = Links::ends()[e];
      *counter(open) = open.first + std::uint64_t{round_} * end.per_tile + end.counted;
    }
    finish();
  }

 private:
  using Links = LaneLinks<Block, kKind>;
  static constexpr bool kWords = kKind == KernelKind::words;
  static constexpr bool kWindows = kKind == KernelKind::windows;
  using Links::block_, Links::shared_, Links::shape_, Links::rank_;
  using Links::clean_slot, Links::counter, Links::look_again, Links::message, Links::signal_payload;
  using Links::plan, Links::lane, Links::state, Links::task, Links::task_beside;
  using Links::round_, Links::step_;
  using Links::wait_for_header, Links::wait_for_slot;
  using typename Links::Wait;

  // Looked up again where they are needed: a value that is kept through a move takes registers from
  // it.
  TUTTI_HD const Range& range() const {
    return Links::template array<Range>(plan().range)[lane().first_range + range_];
  }
  /// The one at hand: from the first barrier of its step to the last.
  TUTTI_HD const DeviceAction& action() const {
    return Links::kInShared ? next_action() : *shared_.action;
  }
  TUTTI_HD const DeviceAction& next_action() const {
    return Links::template array<DeviceAction>(plan().action)[range().first_action + step_];
  }
  TUTTI_HD const DeviceMove& move_of(const DeviceAction& a, std::uint32_t m) const {
    return Links::template array<DeviceMove>(plan().move)[a.first_move + m];
  }

  /// This copy's tiles of a range. A range goes on with the rounds of the one before, except for
  /// messages: each message counts its own.
  TUTTI_HD bool walk() {
    TUTTI_NO_UNROLL
    for (; shared_.tile(round_) < range().end_tile; ++round_) {
      TUTTI_NO_UNROLL
      for (step_ = 0; step_ < lane().actions;) {
        const std::uint32_t steps = perform();
        if (steps == 0) return false;
        step_ += steps;
      }
      if (!kWords && plan().windows != 0 && plan().lanes > 1 && !meet()) return false;
    }
    if (plan().messages != 0) round_ = 0;
    return true;
  }

  // --- Steps -------------------------------------------------------------------------------------

  /// Whether `a`'s messages are ordered: the header comes after the data.
  TUTTI_HD bool is_ordered(const DeviceAction& a) const {
    return kWindows || (!kWords && (a.protocol == Protocol::simple || a.signals != 0));
  }

  /// Signals carry addresses.
  TUTTI_HD bool is_told(const DeviceAction& a) const {
    return kWindows || (!kWords && a.signals != 0 && plan().windows != 0);
  }

  /// An action that is two steps sends before it waits for anything.
  TUTTI_HD bool is_exchange(const DeviceAction& a) const { return a.steps > 1; }

  /// Until the ordered messages are there, and there is room for those to be sent. `confirmed`: of
  /// a message that is not ordered, its header was there, looked at while the data is on its way.
  TUTTI_HD bool begin(const DeviceAction& a, bool& confirmed) {
    const bool ordered = is_ordered(a);
    TUTTI_NO_UNROLL
    for (std::uint32_t n = task_beside(); n < a.receives + a.sends; n += block_.threads()) {
      const std::uint32_t i = !is_exchange(a) ? n : n < a.sends ? a.receives + n : n - a.sends;
      const StepMessage m = message(a, i);
      if (i >= a.receives) {
        if (!wait_for_slot(m)) return false;
        if (ordered) {
          if (is_exchange(a)) publish(a, m);
          continue;
        }
        clean_slot(m);
        // relaxed: it announces nothing, it is there to be compared.
        block_.store_relaxed(m.header(), m.expected);
      } else if (ordered) {
        if (!wait_for_header(a, m, true)) return false;
        if (is_told(a) && !learn(a, m)) return false;
      } else if (!is_exchange(a) && i < block_.threads()) {
        confirmed = load_relaxed(m.header()) == m.expected;
      }
    }
    return true;
  }

  /// An ordered message: release, so that the data and its length, and through windows everything
  /// that this lane did, come before its header.
  TUTTI_HD void publish(const DeviceAction& a, const StepMessage& m) {
    if (is_told(a)) tell_addresses(signal_payload(m));
    block_.store_relaxed(m.length(), a.bytes_out);
    block_.store_release(m.header(), m.expected);
  }

  /// The headers of messages that are not ordered; the data was there.
  TUTTI_HD bool confirm(const DeviceAction& a, bool confirmed) {
    TUTTI_NO_UNROLL
    for (std::uint32_t i = task_beside(); i < a.receives; i += block_.threads()) {
      if (!confirmed && !wait_for_header(a, message(a, i), false)) return false;
      confirmed = false;
    }
    return true;
  }

  /// The headers of ordered messages, and credit for what was received.
  TUTTI_HD void end(const DeviceAction& a) {
    const bool ordered = is_ordered(a);
    TUTTI_NO_UNROLL
    for (std::uint32_t i = task_beside(); i < a.receives + a.sends; i += block_.threads()) {
      const StepMessage m = message(a, i);
      const bool receives = i < a.receives;
      if (!receives && is_exchange(a)) continue;
      // Not by publish(): this way the long kernels have registers enough.
      if (!receives && ordered) {
        if (is_told(a)) tell_addresses(signal_payload(m));
        block_.store_relaxed(m.length(), a.bytes_out);
      }
      if (ordered && (!receives || (!kWindows && a.signals == 0))) {
        // release: the data and its length, and through windows everything that this lane did, come
        // before its header; our loads of a slot before the sender's next stores into it.
        block_.store_release(receives ? m.end->credit : m.header(),
                             receives ? m.number : m.expected);
      } else if (receives) {
        // relaxed, which saves a fence in each step: the slot's flags were compared before the
        // barrier, and what a signal says was stored, so the loads are over. (PTX's model would
        // have a release here. If a load of a flag was late all the same, it would find one that
        // it does not expect, and wait in vain; of a signal's words, the store waits for it.)
        store_relaxed(m.end->credit, m.number);
      }
    }
  }

  /// Whether a block finds the operands of the m-th move when it comes to it, and not before. The
  /// long kernels need their registers, and do one move after the other.
  TUTTI_HD bool looks_up(const DeviceAction& a, std::uint32_t m) const {
    return !Links::kInShared || move_of(a, m).looked_up != 0;
  }

  /// The steps that are done; 0 after a failure.
  TUTTI_HD std::uint32_t perform() {
    bool confirmed = false;
    bool fine = true;
    TUTTI_NO_UNROLL
    for (std::uint32_t m = 0;; ++m) {
      const DeviceAction& a = m == 0 ? next_action() : action();
      if (m == 0 || looks_up(a, m)) {
        fine = m >= a.moves || resolve(a, m);
        if (m == 0) {
          if (block_.thread() == 0) shared_.action = &a;
          fine = fine && begin(a, confirmed);
        }
        if (!block_.all(fine)) return 0;
        if (m >= action().moves) break;
      }
      fine = (!Links::kInShared || fine) && move(move_of(action(), m));
      if (m + 1 >= action().moves) break;
      // Everybody is done with the targets.
      if (looks_up(action(), m + 1) && !block_.all(fine)) return 0;
    }
    // Before the last barrier, after which the next step's is at hand.
    const DeviceAction& a = action();
    const std::uint32_t steps = a.steps;
    if (!is_ordered(a)) fine = fine && confirm(a, confirmed);
    // The barrier, and the releases below after it, order what all threads of the block did.
    // Without a move they have just met; the short kernels do not read the shared action, which is
    // next.
    const bool have_met = Links::kInShared && a.moves == 0 && is_ordered(a);
    if (!have_met && !block_.all(fine)) return 0;
    end(a);
    return steps;
  }

  // --- Windows -----------------------------------------------------------------------------------

  TUTTI_HD void tell_addresses(std::uint64_t* payload) const {
    const auto* words = reinterpret_cast<const std::uint64_t*>(&rank_.addresses);
    TUTTI_NO_UNROLL
    for (std::size_t i = 0; i < sizeof(BufferAddresses) / sizeof *words; ++i) {
      // tmp's stride differs from rank to rank.
      store_relaxed(payload + i, words[i] + (i == 2 ? shared_.copy * plan().tmp_stride : 0));
    }
  }

  TUTTI_HD std::uint64_t* peer_words(std::uint32_t peer) const {
    return reinterpret_cast<std::uint64_t*>(rank_.segment + shape_.peers() +
                                            sizeof(PeerBuffers) * shape_.index(peer, shared_.copy));
  }

  /// Makes the payload of a signal ours. Every lane that hears from a peer hears the same, so the
  /// words are written relaxed, more than once.
  TUTTI_HD bool learn(const DeviceAction& a, const StepMessage& m) {
    const std::uint32_t peer = m.plan->peer;
    const std::uint64_t* payload = signal_payload(m);  // relaxed, as its credit is (end())
    const auto* windows = reinterpret_cast<const MappedWindow*>(rank_.segment + shape_.windows()) +
                          std::size_t{peer} * kMostWindows;
    std::uint64_t* words = peer_words(peer);
    // All loads of one trip, then those that follow from them.
    std::uint64_t said[6];
    TUTTI_UNROLL
    for (int i = 0; i < 6; ++i) said[i] = load_relaxed(payload + i);
    MappedWindow window[3];
    TUTTI_UNROLL
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t id = said[3 + i / 2] >> (32 * (i % 2)) & 0xFFFFFFFFu;
      if (id == 0) {  // an address
        window[i] = {0, ~std::uint64_t{0}};
      } else if (id < kMostWindows) {
        window[i] = windows[id];
      } else {
        window[i] = {0, 0};
        said[i] = 1;  // outside of it
      }
    }
    bool fine = true;
    TUTTI_UNROLL
    for (int i = 0; i < 3; ++i) {
      const bool inside = said[i] <= window[i].bytes;
      fine = fine && inside;
      store_relaxed(words + i, window[i].base + said[i]);
      store_relaxed(words + 3 + i, inside ? window[i].bytes - said[i] : 0);
    }
    store_relaxed(words + 6, said[5]);
    if (!fine) judge(shared_, kNoLooks, 0, round_, step_, a.check, m.use);
    return fine;
  }

  /// Lanes of a copy that write into other ranks' memory meet after each tile, as on the host.
  TUTTI_HD bool meet() {
    const std::uint64_t here = (shared_.operation << 32) + round_ + 1;
    const std::uint32_t first = shared_.copy * plan().lanes;
    // release after the barrier at the end of the last step; acquire below.
    if (block_.thread() == 0) block_.store_release(progress(first + shared_.lane_index), here);
    bool fine = true;
    Wait wait;
    TUTTI_NO_UNROLL
    for (std::uint32_t l = block_.thread(); l < plan().lanes; l += block_.threads()) {
      while (fine && is_before(load_acquire(progress(first + l)), here)) {
        fine = look_again(wait, whom_rank(rank_.rank), 0);
      }
    }
    return block_.all(fine);
  }
  /// The number of the operation comes round after 2^32 of them.
  TUTTI_HD bool is_before(std::uint64_t a, std::uint64_t b) const {
    return static_cast<std::int64_t>(a - b) < 0;
  }
  TUTTI_HD std::uint64_t* progress(std::uint32_t block) const {
    return reinterpret_cast<std::uint64_t*>(rank_.segment + shape_.progress(block));
  }

  // --- Moves -------------------------------------------------------------------------------------

  /// Where the operands of the `first` move are, and those that it looks up with them; a thread for
  /// each.
  TUTTI_HD bool resolve(const DeviceAction& a, std::uint32_t first) {
    const DeviceMove& m = move_of(a, first);
    const auto* operands = Links::template array<DeviceOperand>(plan().operand) + m.first_operand;
    const std::uint32_t count =
        Links::kInShared ? m.looked_up : std::uint32_t{m.destinations} + m.sources;
    bool fine = true;
    TUTTI_NO_UNROLL
    for (std::uint32_t k = task(); k < count; k += block_.threads()) {
      Target t = target(a, operands[k], first);
      if (t.pointer == nullptr) fine = false;
      t.template leave<E>();
      if (operands[k].scaled != 0) scale(t, operands[k]);
      shared_.targets[k] = t;
    }
    return fine;
  }

  TUTTI_HD Target target(const DeviceAction& a, const DeviceOperand& p, std::uint32_t first) {
    Target t;
    const std::uint64_t shift = std::uint64_t{shared_.tile(round_)} * range().tile_stride;
    switch (p.where) {
      case CompiledOperand::in:
        t.pointer = rank_.in + p.offset + shift;
        break;
      case CompiledOperand::out:
        t.pointer = rank_.out + p.offset + shift;
        break;
      case CompiledOperand::tmp:
        t.pointer = rank_.tmp + p.offset + shared_.copy * plan().tmp_stride;
        break;
      case CompiledOperand::send:
      case CompiledOperand::receive: {
        if constexpr (kWindows) return t;
        const auto link = static_cast<std::uint32_t>(p.rank);
        const std::uint32_t use = p.where == CompiledOperand::send ? a.receives + link : link;
        const StepMessage m = message(a, use);
        t.flag = m.number;
        const Protocol protocol = kWords ? Protocol::ll : a.protocol;
        t.use = protocol == Protocol::simple ? 0 : use + 1;
        t.pointer = m.end->data + p.offset +
                    (protocol == Protocol::ll      ? shape_.ll(m.slot)
                     : protocol == Protocol::ll128 ? shape_.ll128(m.slot)
                                                   : shape_.simple(m.slot));
        break;
      }
      default: {
        if constexpr (kWords) return t;
        const auto which = static_cast<std::uint32_t>(p.where) -
                           static_cast<std::uint32_t>(CompiledOperand::peer_in);
        const std::uint64_t* words = peer_words(static_cast<std::uint32_t>(p.rank));
        const std::uint64_t at = p.offset + (p.where == CompiledOperand::peer_tmp ? 0 : shift);
        const std::uint64_t base = load_relaxed(words + which);
        const std::uint64_t limit = load_relaxed(words + 3 + which);
        const std::uint64_t bytes = move_of(a, first + (Links::kInShared ? p.move : 0)).bytes;
        if (at > limit || bytes > limit - at) {
          judge(shared_, kNoLooks, 0, round_, step_, a.check,
                whom_rank(static_cast<std::uint32_t>(p.rank)));
          return t;
        }
        t.pointer = reinterpret_cast<std::byte*>(base + at);
      }
    }
    return t;
  }

  /// A raw input of a reduction is divided or multiplied as it is read; in the canonical order the
  /// sum is divided.
  TUTTI_HD void scale(Target& t, const DeviceOperand& p) const {
    if (rank_.kind == ReduceKind::avg) {
      if constexpr (std::is_floating_point_v<typename E::Wide> && !kInCanonicalOrder<E>) {
        t.template divide<E>(plan().divisor);
      }
    } else if (rank_.kind == ReduceKind::pre_multiplied_sum) {
      t.template multiply<E>(
          p.where == CompiledOperand::in
              ? rank_.scalar
              : load_relaxed(peer_words(static_cast<std::uint32_t>(p.rank)) + 6));
    }
  }

  TUTTI_HD bool move(const DeviceMove& m) {
    const Target* const targets = shared_.targets + (Links::kInShared ? m.first_target : 0);
    if constexpr (kWords) {
      if (m.plain != 0 && rank_.is_plain) {
        return move_plain_words<E>(block_, targets, m.destinations, m.sources, m.bytes,
                                   DataWait{*this});
      }
    }
    const DeviceAction& a = action();
    MoveArguments arguments;
    arguments.targets = targets;
    arguments.destinations = m.destinations;
    arguments.sources = m.sources;
    arguments.bytes = m.bytes;
    if (plan().shares_tiles != 0) {
      arguments.turns = &shared_.turns[block_.thread() / block_.warp()];
      arguments.counter = &state()->turns;
    }
    arguments.part = plan().shares_tiles != 0 ? shared_.copy : 0;
    arguments.parts = plan().shares_tiles != 0 ? plan().copies : 1;
    arguments.reduction.kind = rank_.kind;
    arguments.reduction.is_signed = rank_.is_signed;
    arguments.reduction.divisor = plan().divisor;
    arguments.reduction.reciprocal = plan().reciprocal;
    arguments.reduction.divide_result =
        plan().reduction != 0 && a.completes != 0 && rank_.kind == ReduceKind::avg &&
        (std::is_integral_v<typename E::Wide> || kInCanonicalOrder<E>);
    if constexpr (kWords) return move_words<E>(block_, arguments, 0, DataWait{*this});
    if constexpr (kWindows) return move_memory<E>(block_, arguments, DataWait{*this});
    const bool memory = is_ordered(a) || a.receives + a.sends == 0;
    const Way way = memory ? Way::memory : a.protocol == Protocol::ll ? Way::words : Way::lines;
    return device::move<E>(block_, arguments, way, DataWait{*this});
  }

  /// Until the data of a message is there.
  struct DataWait {
    LaneWalk& walk;

    TUTTI_HD Wait begin() const { return {}; }
    TUTTI_HD bool again(Wait& wait, const Target& t) const {
      const DeviceAction& a = walk.action();
      return walk.look_again(wait, a.first_use + t.use - 1, a.check);
    }
  };

  // --- The end -----------------------------------------------------------------------------------

  /// The last block of a rank counts the operation. The number comes from memory and not from the
  /// launch, so that a captured graph replays for ever. `arrived` starts over, but only for the
  /// next operation, which begins after all blocks of this one have ended.
  TUTTI_HD void finish() {
    // Not all ranks take part in messages, so their counts would differ.
    if (block_.thread() != 0 || plan().messages != 0) return;
    // For lanes that still meet: this one has done all its tiles.
    if (!kWords && plan().windows != 0 && plan().lanes > 1) {
      block_.store_release(progress(shared_.copy * plan().lanes + shared_.lane_index),
                           (shared_.operation << 32) + 0xFFFFFFFF);
    }
    if (rank_.blocks > 1) {
      if (fetch_add(&state()->arrived, 1) + 1 < rank_.blocks) return;
      store_relaxed(&state()->arrived, 0);
    }
    if (!kWords && plan().shares_tiles != 0) {
      store_relaxed(&state()->turns_before, load_relaxed(&state()->turns));
    }
    store_relaxed(&state()->operation, shared_.operation + 1);
  }

  std::uint32_t range_ = 0;
};

/// Block `index` of a launch.
template <class E, KernelKind kKind, class Block>
TUTTI_HD void run_block(Block& block, BlockShared& shared, const Launch& launch,
                        std::uint32_t index) {
  const RankLaunch& rank = launch.rank_of(index);
  LaneWalk<E, Block, kKind>(block, shared, launch.shape, rank, index - rank.first_block).run();
}

}  // namespace tutti::device

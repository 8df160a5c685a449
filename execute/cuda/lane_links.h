// What a block needs of a lane's links: which message a step means and where it lies, waiting for
// messages and for free slots, and how a wait ends when something is wrong. step_logic.h walks the
// lane with it.
//
// A Block is
//
//     std::uint32_t thread(), threads();
//     bool all(bool);               a barrier; whether all threads said true
//     void pause();                 between two looks at something that is not there yet
//     void store_relaxed(p, word), store_pair(p, pair), store_release(p, word): as memory.h's
//
// and of its warps, which must call these together:
//
//     std::uint32_t warp();         threads of a warp, a multiple of eight
//     bool any(bool);               whether one of them said true
//     void converge();              before the next two, whose threads are to come together
//     Pair load_line(p), void store_line(p, pair): 16 bytes of a line that eight threads carry, in
//                                   one access; with a null pointer there is nothing to store
//     std::uint32_t draw(p)         the first thread: a number from *p that no other warp draws
//     std::uint32_t of_first(v)     the first thread's value
#pragma once

#include <cstdint>

#include "execute/cuda/block_shared.h"
#include "execute/cuda/combine_links.h"

namespace tutti::device {

/// A sender clears the flags of a slot's LL words once in so many messages, long before a 32-bit
/// flag comes round.
inline constexpr std::uint64_t kMessagesPerCleaning = std::uint64_t{1} << 27;

template <class Block, KernelKind kKind>
class LaneLinks {
 protected:
  /// Plans of short kernels are in shared memory. The compiler knows that, and loads take less
  /// time.
  static constexpr bool kInShared = kKind == KernelKind::words || kKind == KernelKind::windows;

  TUTTI_HD LaneLinks(Block& block, BlockShared& shared, const SegmentLayout& shape,
                     const RankLaunch& rank, std::uint32_t index)
      : block_(block), shared_(shared), shape_(shared.shape), rank_(shared.rank) {
    // Different warps do these at the same time: each is a trip to memory.
    copy_words(shared.shape, shape, block.thread());
    copy_words(shared.rank, rank, rotated(block.threads() / 4));
    const std::byte* const in_memory = rank.plan;
    const std::uint32_t bytes = rank.plan_bytes;
    const bool fits = kInShared || bytes <= kPlanInShared;
    const std::uint32_t copied = fits ? bytes : sizeof(PlanBlock);
    TUTTI_NO_UNROLL
    for (std::uint32_t at = 16 * rotated(block.threads() / 2); at < copied;
         at += 16 * block.threads()) {
      store_16(shared.plan + at, load_16(in_memory + at));
    }
    if (block.thread() + 1 == block.threads()) {
      State* const state = reinterpret_cast<State*>(rank.segment);
      const std::uint64_t operation = load_relaxed(&state->operation);
      const std::uint64_t turns = load_relaxed(&state->turns_before);
      shared.failed = load_relaxed(&state->failed);
      shared.base = fits ? shared.plan : in_memory;
      shared.operation = operation;
      shared.first_turn = static_cast<std::uint32_t>(turns);
    }
    block.all(true);
    const PlanBlock& p = plan();
    const std::uint32_t copy = p.lanes == 1 ? index : index / p.lanes;
    const DeviceLane& lane = array<DeviceLane>(p.lane)[index - copy * p.lanes];
    open_ends(array<End>(p.end) + lane.first_end, lane.ends, copy);
    if (block.thread() == 0) {
      // As the host executor's tag_of(). Messages of sends and receives have no such number.
      const std::uint64_t hash = (shared.rank.signature + shared.operation) * 0xd6e8feb86659fd93ULL;
      shared.tag = p.messages != 0 ? 0 : static_cast<std::uint32_t>(hash >> 32);
      shared.lane_ends = array<End>(p.end) + lane.first_end;
      shared.uses = array<Use>(p.use);
      shared.lane = lane;
      shared.lane_index = index - copy * p.lanes;
      shared.copy = copy;
    }
  }

  /// This thread's number, counted from another one on.
  TUTTI_HD std::uint32_t rotated(std::uint32_t from) const {
    const std::uint32_t t = block_.thread();
    return t >= from ? t - from : t + block_.threads() - from;
  }
  /// The first of the tasks of this thread, where a block has a few different ones: each of them
  /// in a warp of its own, as the threads of a warp do unlike things one after the other. Or, from
  /// the last warp on, what is done beside such tasks.
  TUTTI_HD std::uint32_t task() const {
    const std::uint32_t warps = block_.threads() / block_.warp();
    const std::uint32_t t = block_.thread();
    return t % block_.warp() * warps + t / block_.warp();
  }
  TUTTI_HD std::uint32_t task_beside() const { return block_.threads() - 1 - task(); }

  /// To shared memory, by all threads, of which this is the one with that number.
  template <class T>
  TUTTI_HD void copy_words(T& to, const T& from, std::uint32_t thread) const {
    static_assert(sizeof(T) % sizeof(std::uint64_t) == 0 && alignof(T) == alignof(std::uint64_t));
    const auto* words = reinterpret_cast<const std::uint64_t*>(&from);
    TUTTI_NO_UNROLL
    for (std::uint32_t i = thread; i < sizeof(T) / sizeof *words; i += block_.threads()) {
      reinterpret_cast<std::uint64_t*>(&to)[i] = words[i];
    }
  }

  TUTTI_HD const PlanBlock& plan() const { return shared_.header(); }
  TUTTI_HD const DeviceLane& lane() const { return shared_.lane; }
  TUTTI_HD State* state() const { return shared_.state(); }

  template <class T>
  TUTTI_HD const T* array(std::uint32_t offset) const {
    return reinterpret_cast<const T*>((kInShared ? shared_.plan : shared_.base) + offset);
  }

  // --- Connections -------------------------------------------------------------------------------

  /// The lane's.
  TUTTI_HD const End* ends() const {
    return kInShared ? array<End>(plan().end) + lane().first_end : shared_.lane_ends;
  }

  /// The channel of this copy: copies of a plan do not share connections.
  TUTTI_HD std::uint32_t channel(const End& end, std::uint32_t copy) const {
    if (plan().messages != 0) return end.channel;
    return shape_.plan_channel(copy * plan().plan_channels + end.channel);
  }
  TUTTI_HD std::uint64_t* counter(const OpenEnd& end) const {
    return reinterpret_cast<std::uint64_t*>(rank_.segment + end.count);
  }
  /// A thread for each end. A connection is in the receiver's segment, its credit in the sender's.
  TUTTI_HD void open_ends(const End* ends, std::uint32_t count, std::uint32_t copy) {
    TUTTI_NO_UNROLL
    for (std::uint32_t e = task_beside(); e < count; e += block_.threads()) {
      const End& end = ends[e];
      const bool sends = end.sends != 0;
      const std::uint32_t c = channel(end, copy);
      // All loads, and then what follows from them.
      std::byte* const mine = rank_.segment;
      std::byte* const theirs = rank_.segments[end.peer];
      const auto number =
          static_cast<std::uint32_t>((sends ? shape_.sent() : shape_.received()) +
                                     sizeof(std::uint64_t) * shape_.index(end.peer, c));
      const std::uint64_t first = *reinterpret_cast<const std::uint64_t*>(mine + number);
      const std::size_t credit = shape_.credit(sends ? end.peer : rank_.rank, c);
      // acquire: our stores into free slots come after the receiver's loads.
      const std::uint64_t freed =
          sends ? load_acquire(reinterpret_cast<const std::uint64_t*>(mine + credit)) : 0;
      OpenEnd& open = shared_.ends[e];
      open.count = number;
      open.first = first;
      open.freed = static_cast<std::uint32_t>(freed);
      open.credit = reinterpret_cast<std::uint64_t*>((sends ? mine : theirs) + credit);
      open.connection =
          (sends ? theirs : mine) + shape_.connection(sends ? rank_.rank : end.peer, c);
      open.data = kInShared || rank_.data == nullptr
                      ? open.connection
                      : rank_.data[shape_.data_row(end.peer, sends) + c];
    }
  }

  /// The i-th message of `a`.
  TUTTI_HD StepMessage message(const DeviceAction& a, std::uint32_t i) const {
    const Use* const uses = kInShared ? array<Use>(plan().use) : shared_.uses;
    return message_of(shared_, uses, ends(), a.first_use + i, round_, a.check);
  }
  TUTTI_HD std::uint64_t* signal_payload(const StepMessage& m) const {
    const std::uint32_t c = channel(*m.plan, shared_.copy);
    return reinterpret_cast<std::uint64_t*>(m.end->connection + (shape_.only_signals(c)
                                                                     ? shape_.signal(m.slot)
                                                                     : shape_.simple(m.slot)));
  }

  // --- Waiting -----------------------------------------------------------------------------------

  /// What one wait has done so far.
  struct Wait {
    std::uint32_t looks = 0;
    Patience patience = 0;
  };

  /// Ordered: acquire, which pairs with the release that publishes the message. Else the data was
  /// there before, and the header is only compared.
  TUTTI_HD bool wait_for_header(const DeviceAction& a, const StepMessage& m, bool ordered) {
    Wait wait;
    TUTTI_NO_UNROLL
    while ((ordered ? load_acquire(m.header()) : load_relaxed(m.header())) != m.expected) {
      if (!look_again(wait, m.use, a.check)) return false;
    }
    return true;
  }

  TUTTI_HD bool wait_for_slot(const StepMessage& m) {
    Wait wait;
    const auto number = static_cast<std::uint32_t>(m.number);
    TUTTI_NO_UNROLL
    while (number - m.end->freed > shape_.slots) {
      // acquire: our stores into free slots come after the receiver's loads.
      m.end->freed = static_cast<std::uint32_t>(load_acquire(m.end->credit));
      if (number - m.end->freed > shape_.slots && !look_again(wait, m.use, 0)) return false;
    }
    return true;
  }

  /// After a look in vain: whether to look again.
  TUTTI_HD bool look_again(Wait& wait, Whom whom, std::uint32_t check) {
    block_.pause();
    wait.looks = wait.looks % kLooksToAsk + 1;  // never kNoLooks, however long it takes
    wait.patience = judge(shared_, wait.looks, wait.patience, round_, step_, check, whom);
    return wait.patience != kGivenUp;
  }

  /// Once in kMessagesPerCleaning messages of a connection: every LL word of the slot gets the flag
  /// of the slot's message before, so that none keeps one for 2^32 messages. By one thread, before
  /// the barrier that comes before this message's words.
  TUTTI_HD void clean_slot(const StepMessage& m) {
    if (m.number < kMessagesPerCleaning || m.number % kMessagesPerCleaning >= shape_.slots) return;
    auto* words = reinterpret_cast<std::uint64_t*>(m.end->connection + shape_.ll(m.slot));
    const std::uint64_t old = (m.number - shape_.slots) << 32;
    TUTTI_NO_UNROLL
    for (std::uint32_t p = 0; p < shape_.ll_bytes / 16; ++p) {
      block_.store_pair(words + std::size_t{2} * p, {old, old});
    }
  }

  Block& block_;
  BlockShared& shared_;
  const SegmentLayout& shape_;
  const RankLaunch& rank_;
  std::uint32_t round_ = 0;  // tiles of this copy before this one
  std::uint32_t step_ = 0;
};

}  // namespace tutti::device

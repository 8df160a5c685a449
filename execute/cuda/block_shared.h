// The data that the threads of a block share (in 48 KB of shared memory on the device), and the end
// of a wait that is long or finds something wrong. That end is out of line, and takes numbers
// alone; it looks up the rest here. So it takes neither registers nor instructions from the fast
// code.
#pragma once

#include <cstdint>

#include "execute/cuda/combine_move.h"
#include "execute/cuda/launch.h"

namespace tutti::device {

/// An end of a connection, looked up once in an operation.
struct OpenEnd {
  std::uint64_t first;    // messages of the connection before this operation
  std::byte* connection;  // where its headers and slots are
  std::byte* data;        // the same, or as if it was where the data of its Simple slots are
  std::uint64_t* credit;  // sends: in our memory, written by the receiver; else the sender's
  std::uint32_t freed;  // sends: messages that the receiver had freed, when last seen; comes round
  std::uint32_t count;  // where in our segment `first` comes from; touched by this lane alone
};

inline constexpr std::uint32_t kMostWarps = 32;

struct BlockShared {
  // What the block walks; here rather than in registers, which the moves need. The compiler would
  // keep all that follows from the kernel's parameters in registers as well, so they are here too.
  SegmentLayout shape;
  RankLaunch rank;
  const std::byte* base;  // of the plan
  DeviceLane lane;
  const End* lane_ends;
  const Use* uses;
  const DeviceAction* action;  // at hand
  std::uint64_t operation;
  std::uint64_t failed;      // State's
  std::uint32_t first_turn;  // of the operation
  Turns turns[kMostWarps];
  std::uint32_t lane_index, copy, tag;

  OpenEnd ends[kMostEnds];
  Target targets[kMostOperands];  // of the move at hand
  // The whole plan, if it is no larger, else its PlanBlock: read once, all together, as each look
  // into the GPU's memory takes longer than a short message.
  alignas(16) std::byte plan[kPlanInShared];

  TUTTI_HD const PlanBlock& header() const { return *reinterpret_cast<const PlanBlock*>(plan); }
  /// Its copies share out the tiles of a plan, or each tile; messages have one copy.
  TUTTI_HD std::uint32_t tile(std::uint32_t round) const {
    return header().shares_tiles != 0 ? round : copy + round * header().copies;
  }
  TUTTI_HD State* state() const { return reinterpret_cast<State*>(rank.segment); }
};
static_assert(sizeof(BlockShared) <= std::size_t{48} << 10);

// --- Messages ------------------------------------------------------------------------------------

/// A message of a step.
struct StepMessage {
  std::uint32_t use;
  std::uint32_t slot;
  const End* plan;
  OpenEnd* end;
  std::uint64_t number;  // in its connection, from 1
  /// The right header: the number, and a word in which both sides must agree.
  std::uint64_t expected;

  TUTTI_HD std::uint64_t* header() const {
    return reinterpret_cast<std::uint64_t*>(end->connection) + slot;
  }
  TUTTI_HD std::uint64_t* length() const { return header() + kLine / sizeof(std::uint64_t); }
  /// Whether a header has this message's number, and another word.
  TUTTI_HD bool is_other(std::uint64_t header) const {
    return header != expected &&
           static_cast<std::uint32_t>(header) == static_cast<std::uint32_t>(expected);
  }
};

/// A use of the plan, of an action with that check, after so many tiles of its block.
TUTTI_HD StepMessage message_of(const BlockShared& shared, const Use* uses, const End* lane_ends,
                                std::uint32_t use, std::uint32_t round, std::uint32_t check) {
  StepMessage m;
  m.use = use;
  const Use u = uses[use];
  m.plan = &lane_ends[u.end];
  m.end = const_cast<OpenEnd*>(&shared.ends[u.end]);
  m.number = m.end->first + std::uint64_t{round} * m.plan->per_tile + u.ordinal + 1;
  m.slot = static_cast<std::uint32_t>(m.number) & (shared.shape.slots - 1);
  const std::uint64_t word = shared.tag + check;  // 32 bits, so it comes round
  m.expected = word << 32 | static_cast<std::uint32_t>(m.number);
  return m;
}

// --- When a wait is long, or something is wrong --------------------------------------------------

/// What the block waits for: a use of the plan, or a rank.
using Whom = std::uint32_t;
TUTTI_HD Whom whom_rank(std::uint32_t rank) { return 1u << 31 | rank; }

TUTTI_HD void write_report(const BlockShared& shared, Report& r, std::uint32_t round,
                           std::uint32_t step, Whom whom, Trouble trouble, std::uint64_t expected,
                           std::uint64_t found) {
  End end{};
  end.peer = whom & ~(1u << 31);
  if (end.peer == whom) {
    const Use& use = shared.uses[whom];
    end = shared.lane_ends[use.end];
    step += use.second_step;
  }
  store_relaxed(&r.messages, shared.header().messages);
  store_relaxed(&r.operation, shared.operation);
  store_relaxed(&r.lane, shared.lane_index);
  store_relaxed(&r.copy, shared.copy);
  store_relaxed(&r.tile, shared.tile(round));
  store_relaxed(&r.step, step);
  store_relaxed(&r.peer, end.peer);
  store_relaxed(&r.sending, end.sends);
  store_relaxed(&r.expected, expected);
  store_relaxed(&r.found, found);
  // release: the host reads the rest after this.
  store_release(&r.trouble, static_cast<std::uint64_t>(trouble));
}

/// What a thread remembers of its wait: 0, or twice the time when it was first asked about it, + 1
/// when the host has been told that it is long. kGivenUp: it must not go on.
using Patience = std::uint64_t;
inline constexpr Patience kGivenUp = ~Patience{0};

/// A wait is judged after so many looks, and its time, and what the host says, after so many.
inline constexpr std::uint32_t kLooksToJudge = 64;
inline constexpr std::uint32_t kLooksToAsk = 1024;

/// No wait: a peer has named memory outside of its windows.
inline constexpr std::uint32_t kNoLooks = 0;

/// After a look in vain, the `looks`-th of a wait: whether to look again. `check`: the action's,
/// where a message is waited for. Other blocks of this rank and the host are asked now and then
/// only; theirs is memory that others need, or behind a bus. The first failure of a rank is the one
/// that counts.
TUTTI_COLD Patience judge(const BlockShared& shared, std::uint32_t looks, Patience patience,
                          std::uint32_t round, std::uint32_t step, std::uint32_t check, Whom whom) {
  if (looks % kLooksToJudge != 0) return patience;
  State* const state = shared.state();
  Control* const control = shared.rank.control;
  if (load_relaxed(&state->failed) != 0) return kGivenUp;
  Trouble trouble = looks == kNoLooks ? Trouble::window : Trouble::none;
  if (looks != kNoLooks && looks % kLooksToAsk == 0) {
    if (load_relaxed(&control->abort) != 0) return kGivenUp;
    const std::uint64_t now = nanoseconds();
    if (patience == 0) patience = now << 1;
    const std::uint64_t waited = now - (patience >> 1);
    const std::uint64_t timeout = load_relaxed(&control->timeout_ns);
    const std::uint64_t late = load_relaxed(&control->late_ns);
    if (timeout != 0 && waited > timeout) {
      trouble = Trouble::timed_out;
    } else if (late != 0 && waited > late && patience % 2 == 0) {
      trouble = Trouble::late;
      patience |= 1;
    }
  }
  // Last, as its numbers take registers until they are written.
  std::uint64_t expected = 0;
  std::uint64_t found = 0;
  if (trouble != Trouble::window && whom < whom_rank(0)) {
    const StepMessage m = message_of(shared, shared.uses, shared.lane_ends, whom, round, check);
    const std::uint64_t says = load_relaxed(m.header());
    if (m.plan->sends == 0 && m.is_other(says)) {
      trouble = Trouble::mismatch;
      expected = m.expected;
      found = says;
    }
  }
  if (trouble == Trouble::none) return patience;
  // Of many threads one writes.
  const bool late = trouble == Trouble::late;
  if (claim(late ? &state->telling : &state->failed, 1)) {
    Report& r = late ? control->late : control->report;
    // Unless the host has not read another one yet.
    if (!late || load_acquire(&r.trouble) == static_cast<std::uint64_t>(Trouble::none)) {
      write_report(shared, r, round, step, whom, trouble, expected, found);
    }
    // release: the next claimant sees the report.
    if (late) store_release(&state->telling, 0);
  }
  return late ? patience : kGivenUp;
}

}  // namespace tutti::device

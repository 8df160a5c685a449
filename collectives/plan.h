// A collective as data. A plan says what every rank does; it has no pointers, no byte sizes and no
// thread ids, so CPU cores or a CUDA kernel execute it, the verifier proves it, and other code
// simulates and draws the same plan.
//
// Each rank has lanes (a lane runs in order), each lane a list of steps, and there is one kind of
// step:
//
//     destinations <- combine(sources)
//
// A source or destination is an operand:
//
//     in[c] out[c] tmp[c]    chunk c of this rank's own buffers
//     in[c]@r ...            the same in rank r's memory, where a window maps it
//     from(r)                (a source) the next slot that arrives from r: wait until it is full,
//                            free it afterwards
//     to(r)                  (a destination) the next free slot towards r: wait until there is one,
//                            publish it afterwards
//
// `to(r) <- ()` is a signal and `() <- from(r)` a wait. A link is identified by (sender, receiver,
// channel); each has one lane that sends and one that receives, and its k-th send meets its k-th
// receive. A link from a rank to itself orders two lanes of that rank.
//
// Chunks. A buffer consists of blocks (for instance one per rank; see in_blocks()) and each block
// is divided into `pieces` chunks: chunk c is piece c % pieces of block c / pieces. A step that
// moves `count` chunks names the first one of each operand. layout.h turns chunks into bytes.
//
// Formats. Links and tmp of an ordinary plan carry elements as the user's buffers have them.
//
// In a compressed plan they carry them in 8 bits (core/compressed.h): a step that writes there
// compresses what it has combined, in float32, unless it passes on a single operand from there.
// Others of its destinations get what the compressed value stands for.
//
// In a wide plan they carry partial sums of 16- and 8-bit floats as float32 (core/wide.h), so that
// no partial sum is rounded. tmp always holds float32. A message holds results, as the user's
// buffers have them, where its sender completes the reduction or passes on `out` or one message,
// and where its receiver has no other source; else float32. For other types a wide plan is an
// ordinary one.
//
// Tiles. A message larger than the slots is cut into tiles, and every lane repeats its steps for
// each tile. Proving one tile, and the reuse of tmp by the next, proves any number.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "collectives/collective.h"
#include "collectives/format.h"

namespace tutti {

/// Links from one rank to another, and lanes of a rank, that a plan's text can name.
inline constexpr std::uint32_t kMostChannels = 255;

enum class Space : std::uint8_t { in, out, tmp, link };

/// A source or destination of a step. Twelve bytes, trivially copyable: a CUDA kernel walks the
/// same array.
struct Operand {
  Space space = Space::tmp;
  std::uint8_t channel = 0;  // link only
  std::uint16_t reserved = 0;
  std::int32_t rank = kSelf;  // memory: the owner (kSelf: this rank); link: the peer
  std::uint32_t chunk = 0;    // memory only: the first chunk

  static constexpr std::int32_t kSelf = -1;
  static constexpr std::uint8_t kLaneChannel =
      255;  // in a builder: the channel numbered as the lane

  constexpr bool is_link() const { return space == Space::link; }
  constexpr bool is_remote() const { return !is_link() && rank != kSelf; }
  /// Memory that the user of another rank gave.
  constexpr bool is_buffer_of_another() const { return is_remote() && space != Space::tmp; }
  /// This chunk's counterpart in rank r's memory.
  constexpr Operand at(int r) const {
    Operand o = *this;
    o.rank = r;
    return o;
  }
  friend constexpr bool operator==(const Operand&, const Operand&) = default;
};

constexpr Operand in(std::uint32_t chunk) { return {Space::in, 0, 0, Operand::kSelf, chunk}; }
constexpr Operand out(std::uint32_t chunk) { return {Space::out, 0, 0, Operand::kSelf, chunk}; }
constexpr Operand tmp(std::uint32_t chunk) { return {Space::tmp, 0, 0, Operand::kSelf, chunk}; }
constexpr Operand to(int peer, std::uint8_t channel = Operand::kLaneChannel) {
  return {Space::link, channel, 0, peer, 0};
}
constexpr Operand from(int peer, std::uint8_t channel = Operand::kLaneChannel) {
  return to(peer, channel);
}

/// One step. Its operands lie in RankPlan::operands: destinations first, then sources.
struct Step {
  std::uint32_t first_operand = 0;
  std::uint16_t destinations = 0;
  std::uint16_t sources = 0;
  std::uint32_t count = 0;         // chunks that it moves; 0: a signal or a wait, without data
  std::uint32_t shape_chunk = 0;   // it moves as many bytes as shape_space[shape_chunk ... + count)
  Space shape_space = Space::out;  //   of this rank: in or out
  bool completes = false;  // the reduction is complete with this step (integer avg divides here)
};

/// The part of a plan that is the same for all ranks.
struct PlanHeader {
  Collective collective = Collective::barrier;
  std::string algorithm;  // "ring", "two_shot_window", ...
  int ranks = 1;
  int root = 0;                   // rooted collectives only, else 0
  std::uint32_t pieces = 1;       // chunks per block
  std::uint32_t slots = 1;        // slots a link must have for the plan to be free of deadlock
  std::uint32_t lanes = 1;        // lanes of every rank (some may be empty)
  std::uint32_t widest = 1;       // the most chunks that one message carries: a slot must hold them
  Format format = Format::plain;  // of links and tmp
  friend bool operator==(const PlanHeader&, const PlanHeader&) = default;
};

/// One rank's part.
struct RankPlan {
  PlanHeader header;
  int rank = 0;
  std::uint32_t tmp_chunks = 0;
  std::vector<std::vector<Step>> lanes;
  std::vector<Operand> operands;

  std::span<const Operand> destinations(const Step& s) const {
    return {operands.data() + s.first_operand, s.destinations};
  }
  std::span<const Operand> sources(const Step& s) const {
    return {operands.data() + s.first_operand + s.destinations, s.sources};
  }
};

/// Whether the messages that a step of a wide plan sends, or takes, hold partial sums.
bool sends_wide(const RankPlan& plan, const Step& step);
constexpr bool takes_wide(const Step& step) { return step.sources > 1; }

/// A whole plan: every rank's part. A communicator only ever builds its own rank's.
struct Plan {
  PlanHeader header;
  std::vector<RankPlan> ranks;
};

/// A plan for readers that look at one rank's part at a time. It makes parts on request. So the
/// verifier and other readers can handle a plan with more steps than fit in memory.
struct PlanParts {
  PlanHeader header;
  std::function<RankPlan(int rank)> part;
};

/// The most channels of our own plans, numbered from 0; users' plans may have kMostChannels.
inline constexpr std::uint32_t kOwnChannels = 8;

/// Builds a RankPlan; generators use it.
///
///     RankPlanBuilder b(header, rank);
///     auto& lane = b.lane(0);
///     lane.step({out(c), to(next)}, {from(prev), in(c)}).completes();
class RankPlanBuilder {
 public:
  class StepRef {
   public:
    /// Moves `n` contiguous chunks instead of one.
    StepRef& span(std::uint32_t n);
    /// Gives the size of `memory` (in or out) to a step without an in or out operand of its own.
    StepRef& shaped_as(Operand memory);
    StepRef& completes(bool yes = true);

   private:
    friend class RankPlanBuilder;
    StepRef(RankPlanBuilder& b, std::uint32_t lane, std::size_t index)
        : b_(b), lane_(lane), index_(index) {}
    Step& get();
    RankPlanBuilder& b_;
    std::uint32_t lane_;
    std::size_t index_;
  };

  class LaneRef {
   public:
    StepRef step(std::span<const Operand> destinations, std::span<const Operand> sources);
    StepRef step(std::initializer_list<Operand> destinations,
                 std::initializer_list<Operand> sources) {
      return step(std::span(destinations.begin(), destinations.size()),
                  std::span(sources.begin(), sources.size()));
    }
    /// to(peers...) <- (): tells them; the executor attaches this rank's buffer addresses.
    StepRef signal(std::span<const int> peers, std::uint8_t channel = Operand::kLaneChannel);
    /// () <- from(peers...): waits for all of them.
    StepRef wait(std::span<const int> peers, std::uint8_t channel = Operand::kLaneChannel);

   private:
    friend class RankPlanBuilder;
    LaneRef(RankPlanBuilder& b, std::uint32_t lane) : b_(b), lane_(lane) {}
    RankPlanBuilder& b_;
    std::uint32_t lane_;
  };

  RankPlanBuilder(PlanHeader header, int rank);
  LaneRef lane(std::uint32_t index) { return LaneRef(*this, index); }
  /// Reserves `n` chunks of tmp and returns the first.
  std::uint32_t reserve_tmp(std::uint32_t n);
  RankPlan finish();

 private:
  RankPlan plan_;
};

}  // namespace tutti

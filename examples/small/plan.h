// 1. A collective as data.
//
// How do four ranks add up four vectors? A program could say it with loops, sends and receives.
// Here it is a table instead: for each rank a list of steps, and there is one kind of step,
//
//     destinations <- combine(sources)
//
// The sources are read and added up, and the sum is written to every destination. One source is a
// copy. A source or a destination is an *operand*:
//
//     in[c]     chunk c of what this rank's caller gave
//     out[c]    chunk c of what the caller gets
//     from(r)   a source: the next message from rank r. The step waits for it
//     to(r)     a destination: the next message to rank r. The step waits for a free slot
//
// These few words are enough. Rank 0 of two ranks, in an all_reduce:
//
//     to(1) <- in[1]                       send a chunk to rank 1
//     out[0], to(1) <= from(1) + in[0]     add up the other chunk, keep the sum, and send it too
//     out[1] <- from(1)                    the first chunk comes back, added up
//
// What is gained: a table can be printed (text.h) and proved (verify.h) before it runs (run.h).
// Those three know nothing of rings; ring.h, which makes tables, knows nothing of memory.
//
// Chunks. A buffer has blocks, one for each rank or one in all, and a block has `pieces` chunks:
// chunk c is piece c % pieces of block c / pieces. How many bytes that is, the caller's count
// decides later.
//
// In the library: collectives/plan.h. It adds scratch memory (tmp), other ranks' memory (in[c]@r),
// messages without data, lanes that work side by side, several links between two ranks (channels),
// steps that move several chunks, a root, and formats with fewer or with more bits than the
// caller's type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace small {

enum class Collective { all_reduce, all_gather, reduce_scatter };

enum class Space { in, out, link };

/// A source or a destination of a step.
struct Operand {
  Space space = Space::in;
  std::uint32_t chunk = 0;  // memory alone
  int peer = -1;            // a link alone: the rank at its other end

  bool is_link() const { return space == Space::link; }
  friend bool operator==(const Operand&, const Operand&) = default;
};

inline Operand in(std::uint32_t chunk) { return {Space::in, chunk, -1}; }
inline Operand out(std::uint32_t chunk) { return {Space::out, chunk, -1}; }
inline Operand to(int peer) { return {Space::link, 0, peer}; }
inline Operand from(int peer) { return {Space::link, 0, peer}; }

struct Step {
  std::vector<Operand> destinations;
  std::vector<Operand> sources;
  bool completes = false;  // the sum is complete with this step: "<=" in the text

  friend bool operator==(const Step&, const Step&) = default;
};

/// Whole plan: the steps of every rank, in their order.
struct Plan {
  Collective collective = Collective::all_reduce;
  std::string algorithm;     // its name, one word
  std::uint32_t pieces = 1;  // chunks of a block
  std::uint32_t slots = 1;   // messages that a link holds at least, or the plan may not end
  std::vector<std::vector<Step>> steps;  // by rank

  int ranks() const { return static_cast<int>(steps.size()); }
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Whether the collective adds up what ranks give.
inline bool reduces(Collective c) { return c != Collective::all_gather; }
/// The blocks of a rank's `in`: an all_gather takes one, a reduce_scatter one for each rank.
inline std::uint32_t in_blocks(Collective c, int ranks) {
  return c == Collective::reduce_scatter ? static_cast<std::uint32_t>(ranks) : 1;
}
/// The blocks of a rank's `out`.
inline std::uint32_t out_blocks(Collective c, int ranks) {
  return c == Collective::all_gather ? static_cast<std::uint32_t>(ranks) : 1;
}

}  // namespace small

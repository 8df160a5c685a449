// The verifier: proves a plan, for every possible timing, before it runs.
//
// A plan with ranks that meet only in bounded FIFO links is a Kahn network: whatever the timing,
// every link carries the same sequence of values, so one symbolic run stands for all runs. The
// verifier makes that run, with exactly the declared slots. It proves:
//
//  - form: operands in range, sizes of the k-th send and the k-th receive equal, one lane at each
//    end of a link, `in` never written (out of place), nothing read before it is written;
//  - no deadlock: the run ends with every lane done and every slot read. Tiles follow one another
//    forwards only, so the proof for one tile holds for any number;
//  - no data race: any two conflicting accesses to a chunk (also remote ones, also of tmp across
//    successive tiles, also the user's own before the call and after it) are ordered by lane order
//    and link messages alone. A freed slot does not count as order, so a link with more slots than
//    declared is as safe;
//  - the right result: every chunk of every rank's `out` is the reduction of exactly the right
//    contributions, each once, and `completes` is set where it becomes complete;
//  - equal bits: ranks that hold the same result obtained it by the same expression;
//  - of a compressed plan of several ranks, more than that: each result of an all_reduce is
//    compress(compress(in@0) + compress(in@1) + ...), each input compressed by its own rank, and
//    the sum taken once, in the order of the ranks. Of a reduce_scatter the sum is not compressed,
//    as it stays with its rank. No rank addresses another's memory;
//  - if asked for: invariant bits. Each result is the canonical expression, a balanced tree over
//    the ranks' inputs in their order (docs/determinism.md), rounded once; or the proof holds for
//    types alone that are stored as they are summed (Invariance::float32_up);
//  - of a wide plan, that both ends of a link take a message for the same: partial sums or results;
//  - a remote operand @r is used only after a signal from r, a message without data (it carries
//    r's addresses).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan.h"

namespace tutti {

/// For which types a plan's sums have invariant bits (docs/determinism.md).
enum class Invariance : std::uint8_t {
  none,
  float32_up,  // float32 and float64 alone: partial sums are stored, which rounds narrower types
  all,         // of every type: no partial sum is rounded
};

/// A rank's traffic in one tile, in chunks (a chunk that crosses a link, or another rank's memory).
struct Traffic {
  std::uint64_t sent = 0;      // chunks put on links to others, or written to their memory
  std::uint64_t received = 0;  // chunks taken from links from others, or read from their memory
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct VerifyOptions {
  bool in_place = false;  // in and out coincide as NCCL defines
  bool scales = true;     // for every operator; false: for those that do not scale inputs as they
                          // read them, so that a copy of an input has the bits of the input
  Invariance invariant = Invariance::none;  // reductions: also that each result is the canonical
                                            // expression for these types, where steps combine in
                                            // the canonical order (CombineOptions::canonical)
};

struct Verdict {
  bool proved = false;
  std::string story;             // empty when proved; else what goes wrong, step by step, in words
  std::vector<Traffic> traffic;  // by rank
  std::uint64_t steps = 0;       // of all ranks, when proved
  std::uint32_t roundings = 0;   // the most sums, one in the other, on the way to a result: how
                                 // often a sum of 16- or 8-bit floats is rounded
};

/// Asks for every rank's part once (and once more to describe a failure), and keeps little of it:
/// it keeps repeated steps once. Passes on exceptions of plan.part().
Verdict verify(const PlanParts& plan, const VerifyOptions& options = {});
Verdict verify(const Plan& plan, const VerifyOptions& options = {});

}  // namespace tutti

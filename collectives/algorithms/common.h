// Common parts of the generators: headers, rank arithmetic, and slicing over lanes.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/plan.h"

namespace tutti::algorithm {

/// PlanHeader has the meanings.
struct Sizes {
  std::uint32_t pieces = 1;
  std::uint32_t slots = 1;
  std::uint32_t lanes = 1;
  std::uint32_t widest = 1;
  Format format = Format::plain;
};

/// The header of a plan for `collective`. Throws Error(invalid_argument) unless the request's ranks
/// and root and `rank` make sense.
PlanHeader make_header(Collective collective, std::string_view name, const PlanRequest& request,
                       int rank, const Sizes& sizes);

/// x modulo n, for x from -n on.
constexpr int wrap(int x, int n) { return (x + n) % n; }
constexpr std::uint32_t u32(int x) { return static_cast<std::uint32_t>(x); }
/// The largest power of two up to n (n >= 1).
constexpr int power_of_two_in(int n) { return static_cast<int>(std::bit_floor(u32(n))); }

/// Label v of a binomial tree over the labels 0 (the root) ... n - 1: its parent is v without its
/// lowest one bit, and its subtree are the labels v ... v + lowest bit - 1.
struct BinomialNode {
  struct Child {
    int label;
    int subtree;  // labels there
  };
  int parent = -1;  // none: the root
  std::vector<Child> children;

  BinomialNode(int n, int label);
};

/// All ranks except `rank`, from its successor on, so that ranks do not all begin with the same
/// one.
std::vector<int> others(int ranks, int rank);

/// chunk@0, chunk@1, ..., chunk@(n-1): the same chunk of all ranks, through windows.
std::vector<Operand> of_all_ranks(int ranks, Operand chunk);
/// `own` and a message from each other rank, in the order of the ranks.
std::vector<Operand> in_rank_order(int ranks, int rank, Operand own);
/// to(q) for all peers.
std::vector<Operand> to_all(const std::vector<int>& peers);
/// `own` and a message to each of `peers`.
std::vector<Operand> and_to(const std::vector<int>& peers, Operand own);
/// Signals all peers and waits for all of theirs.
void meet(RankPlanBuilder::LaneRef lane, const std::vector<int>& peers);

/// `out[0] <- in[0]`: the whole work of one rank alone.
void copy_alone(RankPlanBuilder& builder, Collective collective);

/// A plan with a part of its own for each slice of every block. `parts` are one rank's parts of
/// several plans, which differ only in the order of the ranks. Throws as slice().
RankPlan join_slices(const std::vector<const RankPlan*>& parts);

/// Runs a plan on `slices` slices of every block at a time: slice s has lanes, channels, and chunks
/// of its own, so no slice waits for another. Throws Error(invalid_argument) if there are not
/// enough channels, or if a step moves a span that is not contiguous in a slice.
RankPlan slice(RankPlan plan, std::uint32_t slices);

/// Extends a generator of one slice, and its textbook, to PlanRequest::lanes.
template <auto kGenerate>
RankPlan sliced(const PlanRequest& request, int rank) {
  PlanRequest one = request;
  one.lanes = 1;
  return slice(kGenerate(one, rank), request.lanes);
}
template <auto kTextbook>
Traffic sliced_traffic(const PlanRequest& request, int rank) {
  const Traffic one = kTextbook(request, rank);
  return {one.sent * request.lanes, one.received * request.lanes};
}

}  // namespace tutti::algorithm

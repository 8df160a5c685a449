// The textbooks' formulas: the traffic of a rank, in chunks per tile and slice, and the number of
// messages that follow each other. These closed formulas know nothing of the generators, so tests
// can compare the two.
#pragma once

#include "collectives/algorithms.h"

namespace tutti::algorithm::textbook {

Traffic nothing(const PlanRequest& request, int rank);
/// One chunk (block, vector) for every other rank, and one from each.
Traffic exchange(const PlanRequest& request, int rank);
/// exchange() twice: reduce-scatter and all-gather.
Traffic exchange_twice(const PlanRequest& request, int rank);
/// Reads one chunk of every other rank.
Traffic read_others(const PlanRequest& request, int rank);
/// read_others() twice: reduce-scatter and all-gather.
Traffic read_twice(const PlanRequest& request, int rank);
/// Reads the root's block, in four chunks.
Traffic read_pieces_of_root(const PlanRequest& request, int rank);
/// One chunk from the root to each rank directly; and back.
Traffic from_root(const PlanRequest& request, int rank);
Traffic to_root(const PlanRequest& request, int rank);
/// Each rank reads one chunk of the root's memory; and the root one of each rank's.
Traffic read_root(const PlanRequest& request, int rank);
Traffic root_reads(const PlanRequest& request, int rank);
/// Every rank writes one chunk to the root.
Traffic write_root(const PlanRequest& request, int rank);
/// Every rank writes a chunk of the root's input to all outputs, or sums up a chunk into the
/// root's.
Traffic split_broadcast(const PlanRequest& request, int rank);
Traffic split_reduce(const PlanRequest& request, int rank);
/// exchange(), and one chunk from each rank to the root.
Traffic two_shot_reduce(const PlanRequest& request, int rank);
Traffic chain_broadcast(const PlanRequest& request, int rank);
Traffic chain_reduce(const PlanRequest& request, int rank);
Traffic tree_all_reduce(const PlanRequest& request, int rank);
Traffic tree_broadcast(const PlanRequest& request, int rank);
Traffic tree_reduce(const PlanRequest& request, int rank);
Traffic binomial_gather(const PlanRequest& request, int rank);
Traffic binomial_scatter(const PlanRequest& request, int rank);
Traffic recursive_doubling_all_reduce(const PlanRequest& request, int rank);
Traffic recursive_doubling_all_gather(const PlanRequest& request, int rank);
Traffic recursive_halving_all_reduce(const PlanRequest& request, int rank);
Traffic recursive_halving_reduce_scatter(const PlanRequest& request, int rank);
Traffic neighbours(const PlanRequest& request, int rank);
/// Windows inside of groups, links across (hierarchical_direct.cpp).
Traffic groups_all_reduce(const PlanRequest& request, int rank);
Traffic groups_reduce_scatter(const PlanRequest& request, int rank);
Traffic groups_all_gather(const PlanRequest& request, int rank);
/// The traffic of `kWhole` in three pieces each.
template <auto kWhole>
Traffic in_three(const PlanRequest& request, int rank) {
  const Traffic whole = kWhole(request, rank);
  return {3 * whole.sent, 3 * whole.received};
}
Traffic groups_chain_broadcast(const PlanRequest& request, int rank);
Traffic groups_binomial_broadcast(const PlanRequest& request, int rank);
Traffic groups_direct_reduce(const PlanRequest& request, int rank);
Traffic groups_chain_reduce(const PlanRequest& request, int rank);
Traffic groups_binomial_reduce(const PlanRequest& request, int rank);

/// Algorithm::hops.
int one_hop(int ranks);
int two_hops(int ranks);
int three_hops(int ranks);
int around(int ranks);
int around_twice(int ranks);
int logarithmic(int ranks);
int binomial(int ranks);
int doubling(int ranks);
int halving(int ranks);
int halving_and_doubling(int ranks);
int up_or_down(int ranks);
int up_and_down(int ranks);
/// The signals "ready" and "done" inside of each group, and the given number across.
Hops in_groups(const PlanRequest& request, int (*across)(int groups));
/// Up and down a binomial tree in each group; dissemination across.
Hops hierarchical_barrier(const PlanRequest& request);

}  // namespace tutti::algorithm::textbook

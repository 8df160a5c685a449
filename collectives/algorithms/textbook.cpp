// Closed formulas of what a rank moves.
#include "collectives/algorithms/textbook.h"

#include <algorithm>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/fold.h"
#include "collectives/algorithms/groups.h"

namespace tutti::algorithm::textbook {
namespace {

std::uint64_t u64(int x) { return static_cast<std::uint64_t>(x); }
Traffic reversed(Traffic t) { return {t.received, t.sent}; }

/// The label of a rank counted from the root.
int label(const PlanRequest& request, int rank) { return wrap(rank - request.root, request.ranks); }

/// Children of label v in the two trees together: v is interior where its position is even, and has
/// two children there but at the last position m.
std::uint64_t children(int n, int v) {
  const int m = n - 1;
  if (v == 0) return m > 0 ? 2 : 0;
  if (v % 2 == 0) return v == m ? 1 : 2;
  if (v == 1) return m % 2 == 0 ? 1 : 0;
  return 2;
}

/// Blocks of the groups of 1, 2, 4, ..., cores / 2 cores that `core` belongs to, in all.
std::uint64_t blocks_of_groups(const Fold& fold, int core) {
  std::uint64_t blocks = 0;
  for (int size = 1; size < fold.cores; size *= 2) {
    const int first = core / size * size;
    blocks += u64(size + std::clamp(fold.extras - first, 0, size));
  }
  return blocks;
}

/// Of how many ranks of other groups `rank` is the deputy.
std::uint64_t deputed(const Groups& g) {
  std::uint64_t ranks = 0;
  for (int k = 0; k < g.count(); ++k) {
    const int size = g.size_of(g.mine);
    if (k != g.mine) ranks += u64((g.size_of(k) - g.index + size - 1) / size);
  }
  return ranks;
}

/// What a rank's group passes on, chunk by chunk, and how many of these are the rank's.
Traffic carried(const PlanRequest& request, int rank, bool chain) {
  const Groups g(request, rank);
  const int size = g.size_of(g.mine);
  const int label = wrap(g.mine - g.group_of(g.root), g.count());
  int after = 0;  // groups that hear from this one
  for (int v = label + 1; v < g.count(); ++v)
    after += (chain ? v - 1 : v & (v - 1)) == label ? 1 : 0;
  const std::uint64_t chunks = u64((g.largest() - g.index + size - 1) / size);
  const std::uint64_t got = label > 0 || rank != g.root ? 1 : 0;
  return {chunks * u64(size - 1 + after), chunks * got};
}

}  // namespace

Traffic nothing(const PlanRequest&, int) { return {}; }

Traffic exchange(const PlanRequest& request, int) {
  return {u64(request.ranks - 1), u64(request.ranks - 1)};
}

Traffic exchange_twice(const PlanRequest& request, int) {
  return {2 * u64(request.ranks - 1), 2 * u64(request.ranks - 1)};
}

Traffic read_others(const PlanRequest& request, int) { return {0, u64(request.ranks - 1)}; }

Traffic read_twice(const PlanRequest& request, int rank) {
  return {0, 2 * read_others(request, rank).received};
}

Traffic from_root(const PlanRequest& request, int rank) {
  return rank == request.root ? Traffic{u64(request.ranks - 1), 0} : Traffic{0, 1};
}

Traffic to_root(const PlanRequest& request, int rank) { return reversed(from_root(request, rank)); }

Traffic read_root(const PlanRequest& request, int rank) {
  return {0, rank == request.root ? 0U : 1U};
}

Traffic read_pieces_of_root(const PlanRequest& request, int rank) {
  return {0, 4 * read_root(request, rank).received};
}

Traffic root_reads(const PlanRequest& request, int rank) {
  return {0, rank == request.root ? u64(request.ranks - 1) : 0};
}

Traffic write_root(const PlanRequest& request, int rank) {
  return {rank == request.root ? 0U : 1U, 0};
}

Traffic split_broadcast(const PlanRequest& request, int rank) {
  return {u64(request.ranks - 1), rank == request.root ? 0U : 1U};
}

Traffic split_reduce(const PlanRequest& request, int rank) {
  return reversed(split_broadcast(request, rank));
}

Traffic two_shot_reduce(const PlanRequest& request, int rank) {
  const Traffic first = exchange(request, rank);
  const Traffic second = to_root(request, rank);
  return {first.sent + second.sent, first.received + second.received};
}

Traffic chain_broadcast(const PlanRequest& request, int rank) {
  const int v = label(request, rank);
  return {v == request.ranks - 1 ? 0U : 1U, v == 0 ? 0U : 1U};
}

Traffic chain_reduce(const PlanRequest& request, int rank) {
  return reversed(chain_broadcast(request, rank));
}

Traffic tree_all_reduce(const PlanRequest& request, int rank) {
  const std::uint64_t parents = rank == 0 ? 0 : 2;
  const std::uint64_t neighbours = parents + children(request.ranks, rank);
  return {neighbours, neighbours};
}

Traffic tree_broadcast(const PlanRequest& request, int rank) {
  const int v = label(request, rank);
  return {children(request.ranks, v), v == 0 ? 0U : 2U};
}

Traffic tree_reduce(const PlanRequest& request, int rank) {
  return reversed(tree_broadcast(request, rank));
}

Traffic binomial_gather(const PlanRequest& request, int rank) {
  const int v = label(request, rank);
  if (v == 0) return {0, u64(request.ranks - 1)};
  const int subtree = std::min(v & -v, request.ranks - v);
  return {u64(subtree), u64(subtree - 1)};
}

Traffic binomial_scatter(const PlanRequest& request, int rank) {
  return reversed(binomial_gather(request, rank));
}

Traffic recursive_doubling_all_reduce(const PlanRequest& request, int rank) {
  Traffic t;
  for (int size = 1; size < request.ranks; size *= 2) {
    const int place = rank % (2 * size);
    const int partners = std::min(size, request.ranks - (rank - place) - size);
    if (partners <= 0) continue;  // the rank's group is the last one
    ++t.received;
    // Those of a short second group share the ranks of the first one between them.
    if (place >= size) t.sent += u64((size - (place - size) + partners - 1) / partners);
    if (place < partners) ++t.sent;
  }
  return t;
}

Traffic recursive_doubling_all_gather(const PlanRequest& request, int rank) {
  const Fold fold(request.ranks);
  const std::uint64_t all_others = u64(request.ranks - 1);
  if (fold.is_extra(rank)) return {1, all_others};
  const std::uint64_t sent = blocks_of_groups(fold, fold.core_of(rank));
  return {sent + (fold.has_extra(rank) ? all_others : 0), all_others};
}

Traffic recursive_halving_all_reduce(const PlanRequest& request, int rank) {
  const Fold fold(request.ranks);
  const std::uint64_t vector = u64(fold.cores);
  if (fold.is_extra(rank)) return {vector, vector};
  const std::uint64_t moved = 2 * (vector - 1) + (fold.has_extra(rank) ? vector : 0);
  return {moved, moved};
}

Traffic recursive_halving_reduce_scatter(const PlanRequest& request, int rank) {
  const Fold fold(request.ranks);
  const std::uint64_t n = u64(request.ranks);
  if (fold.is_extra(rank)) return {n, 1};
  const std::uint64_t received = blocks_of_groups(fold, fold.core_of(rank));
  // It gives away all blocks but its own, the extra rank's after it is complete.
  return {n - 1, received + (fold.has_extra(rank) ? n : 0)};
}

Traffic neighbours(const PlanRequest& request, int) {
  return request.ranks == 1 ? Traffic{} : Traffic{1, 1};
}

Traffic groups_all_reduce(const PlanRequest& request, int rank) {
  const Groups g(request, rank);
  const std::uint64_t size = u64(g.size_of(g.mine));
  const std::uint64_t moved = deputed(g) * size + (size - 1) + u64(g.count() - 1);
  return {moved, moved};
}

Traffic groups_reduce_scatter(const PlanRequest& request, int rank) {
  const Groups g(request, rank);
  const std::uint64_t others = u64(g.size_of(g.mine) - 1);
  return {deputed(g), (deputed(g) + 1) * others + u64(g.count() - 1)};
}

Traffic groups_all_gather(const PlanRequest& request, int rank) {
  return reversed(groups_reduce_scatter(request, rank));
}

Traffic groups_chain_broadcast(const PlanRequest& request, int rank) {
  return carried(request, rank, true);
}

Traffic groups_binomial_broadcast(const PlanRequest& request, int rank) {
  return carried(request, rank, false);
}

Traffic groups_direct_reduce(const PlanRequest& request, int rank) {
  const Groups g(request, rank);
  const int size = g.size_of(g.mine);
  const std::uint64_t chunks = u64((g.largest() - g.index + size - 1) / size);
  const bool of_root = g.mine == g.group_of(g.root);
  return {rank == g.root ? 0 : chunks, chunks * u64(size - 1 + (of_root ? g.count() - 1 : 0))};
}

Traffic groups_chain_reduce(const PlanRequest& request, int rank) {
  return reversed(carried(request, rank, true));
}

Traffic groups_binomial_reduce(const PlanRequest& request, int rank) {
  return reversed(carried(request, rank, false));
}

int one_hop(int n) { return n > 1 ? 1 : 0; }
int two_hops(int n) { return n > 1 ? 2 : 0; }
int three_hops(int n) { return n > 1 ? 3 : 0; }
int around(int n) { return n - 1; }
int around_twice(int n) { return 2 * (n - 1); }
int logarithmic(int n) { return static_cast<int>(std::bit_width(u32(n) - 1)); }
int binomial(int n) { return static_cast<int>(std::bit_width(u32(n))) - 1; }
/// Extra ranks hand in before, and hear with their neighbour's last message; what reaches the
/// other end of the cores by the longest way has a neighbour there if there are enough of them.
int doubling(int n) {
  const Fold fold(n);
  return binomial(n) + (fold.extras > 0 ? 1 : 0) + (fold.extras > fold.cores / 2 ? 1 : 0);
}
int halving(int n) { return binomial(n) + (Fold(n).extras > 0 ? 2 : 0); }
int halving_and_doubling(int n) { return halving(n) + binomial(n); }
/// The deeper of the two trees.
int up_or_down(int n) { return logarithmic(n); }
int up_and_down(int n) { return 2 * logarithmic(n); }
Hops in_groups(const PlanRequest& request, int (*across)(int groups)) {
  const Groups g(request, 0);
  return {two_hops(g.largest()), across(g.count())};
}
Hops hierarchical_barrier(const PlanRequest& request) {
  const Groups g(request, 0);
  return {2 * binomial(g.largest()), logarithmic(g.count())};
}

}  // namespace tutti::algorithm::textbook

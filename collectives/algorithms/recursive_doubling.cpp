// Recursive doubling: groups of 1, 2, 4, ... ranks exchange all they have with the group next to
// theirs, so that everyone knows twice as much after it: log2(n) rounds. R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
// 19(1), 2005.
//
// All-reduce: every message is the whole vector, which is the fastest there is for short ones. The
// groups are the branches of a balanced tree over the ranks, so each result is the canonical
// expression (docs/determinism.md), if no sum is rounded on its way (PlanRequest::in_order): then
// the plan is wide. Any number of ranks: where the second of two groups is the shorter one, its
// ranks send to several ranks of the first.
//
// All-gather: any number of ranks by folding, see fold.h. An extra rank hears what its even
// neighbour hears, in the same messages.
#include <algorithm>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/fold.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

/// What a rank does when its group and the group next to it exchange their sums.
struct Exchange {
  int from = 0;
  std::vector<int> to;
  bool mine_first = false;  // its group has the lower ranks
};

std::vector<Exchange> exchanges_of(int rank, int ranks) {
  std::vector<Exchange> all;
  for (int size = 1; size < ranks; size *= 2) {
    const int first = rank - rank % (2 * size);
    const int second = first + size;
    const int count = std::min(size, ranks - second);  // of the second group
    if (count <= 0) continue;
    Exchange& e = all.emplace_back();
    e.mine_first = rank < second;
    const int i = e.mine_first ? rank - first : rank - second;
    e.from = e.mine_first ? second + i % count : first + i;
    if (e.mine_first && i < count) e.to.push_back(second + i);
    if (!e.mine_first) {
      for (int q = first + i; q < second; q += count) e.to.push_back(q);
    }
  }
  return all;
}

}  // namespace

RankPlan recursive_doubling_all_reduce(const PlanRequest& request, int rank) {
  // A sum of two is complete: nothing is rounded on its way.
  const bool wide = request.in_order && request.ranks > 2;
  RankPlanBuilder b(make_header(Collective::all_reduce, "recursive_doubling", request, rank,
                                {.format = wide ? Format::wide : Format::plain}),
                    rank);
  auto lane = b.lane(0);
  if (request.ranks == 1) {
    copy_alone(b, Collective::all_reduce);
    return b.finish();
  }
  const std::vector<Exchange> exchanges = exchanges_of(rank, request.ranks);
  Operand own = in(0);
  if (request.scales && !wide) {
    // Where the operator may scale it, the own input is stored before it is summed, rounded as the
    // others' copy of it is; so all sum up the same numbers.
    own = out(0);
    lane.step(and_to(exchanges.front().to, own), std::vector{in(0)});
  } else {
    lane.step(to_all(exchanges.front().to), std::vector{own});
  }
  const Operand partial = wide && exchanges.size() > 1 ? tmp(b.reserve_tmp(1)) : out(0);
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const Exchange& e = exchanges[i];
    const Operand theirs = from(e.from);
    const std::vector<Operand> sources =
        e.mine_first ? std::vector{own, theirs} : std::vector{theirs, own};
    if (i + 1 == exchanges.size()) {
      lane.step(std::vector{out(0)}, sources).completes();
    } else {
      lane.step(and_to(exchanges[i + 1].to, partial), sources).shaped_as(out(0));
    }
    own = partial;
  }
  return b.finish();
}

RankPlan recursive_doubling_all_gather(const PlanRequest& request, int rank) {
  const Fold fold(request.ranks);
  const std::uint32_t widest =
      fold.cores == 1 ? 1 : std::max(1U, fold.blocks({0, fold.cores / 2}).count);
  RankPlanBuilder b(
      make_header(Collective::all_gather, "recursive_doubling", request, rank, {.widest = widest}),
      rank);
  auto lane = b.lane(0);
  if (request.ranks == 1) {
    copy_alone(b, Collective::all_gather);
    return b.finish();
  }
  const std::uint32_t own = u32(rank);
  const bool extra = fold.is_extra(rank);
  const int neighbour = extra ? rank - 1 : rank + 1;  // of a folded pair
  const int core = fold.core_of(extra ? neighbour : rank);
  const bool paired = extra || fold.has_extra(rank);
  if (paired) {
    lane.step({out(own), to(neighbour)}, {in(0)});
    lane.step({out(u32(neighbour))}, {from(neighbour)});
  } else {
    lane.step({out(own)}, {in(0)});
  }
  for (int distance = 1; distance < fold.cores; distance *= 2) {
    // The core's and the partner's aligned groups of `distance` cores.
    const int group = core & ~(distance - 1);
    const Run mine = fold.blocks({group, distance});
    const Run theirs = fold.blocks({group ^ distance, distance});
    const int partner = fold.rank_of(core ^ distance);
    if (extra) {
      lane.step({out(theirs.first)}, {from(neighbour)}).span(theirs.count);
      continue;
    }
    lane.step({to(partner)}, {out(mine.first)}).span(mine.count);
    if (paired) {
      lane.step({out(theirs.first), to(neighbour)}, {from(partner)}).span(theirs.count);
    } else {
      lane.step({out(theirs.first)}, {from(partner)}).span(theirs.count);
    }
  }
  return b.finish();
}

}  // namespace tutti::algorithm

// Recursive doubling: in round k, ranks whose numbers differ in bit k alone exchange all they have,
// so that everyone knows twice as much after it: log2(n) rounds. For all-reduce every message is
// the whole vector, which is the fastest there is for short ones. R. Thakur, R. Rabenseifner, W.
// Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.
//
// Any number of ranks: see fold.h. An extra rank hears what its even neighbour hears, in the same
// messages.
#include <algorithm>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/fold.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {

RankPlan recursive_doubling_all_reduce(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_reduce, "recursive_doubling", request, rank, {}),
                    rank);
  const Fold fold(request.ranks);
  auto lane = b.lane(0);
  if (request.ranks == 1) {
    copy_alone(b, Collective::all_reduce);
    return b.finish();
  }
  if (fold.is_extra(rank)) {
    lane.step({to(rank - 1)}, {in(0)});
    lane.step({out(0)}, {from(rank - 1)});
    return b.finish();
  }
  const int core = fold.core_of(rank);
  const auto partner = [&](int distance) { return fold.rank_of(core ^ distance); };
  // Where the operator may scale it, the own input is stored before it is summed, rounded as the
  // partner's copy of it is; so both sum up the same numbers, the lower core's first, and get the
  // same bits.
  Operand own = out(0);
  if (fold.has_extra(rank)) {
    lane.step({own, to(partner(1))}, {in(0), from(rank + 1)});
  } else if (request.scales) {
    lane.step({own, to(partner(1))}, {in(0)});
  } else {
    own = in(0);
    lane.step({to(partner(1))}, {own});
  }
  for (int distance = 1; distance < fold.cores; distance *= 2) {
    const Operand theirs = from(partner(distance));
    const bool mine_first = (core & distance) == 0;
    const Operand first = mine_first ? own : theirs;
    const Operand second = mine_first ? theirs : own;
    own = out(0);
    if (2 * distance < fold.cores) {
      lane.step({out(0), to(partner(2 * distance))}, {first, second});
    } else if (fold.has_extra(rank)) {
      lane.step({out(0), to(rank + 1)}, {first, second}).completes();
    } else {
      lane.step({out(0)}, {first, second}).completes();
    }
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

// Pairwise exchange: in round i every rank sends to the rank i after it and receives from the rank
// i before it, so at any time all links that are in use are used by one pair each. For all-to-all,
// where everyone has something else for everyone, no forwarding can save anything on long messages.
//
// With blocks of any size (all_to_all_v) every pair has its own number of tiles. A lane repeats its
// steps for as many tiles as its own largest block needs; so each lane sends one block, or receives
// one.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {

RankPlan pairwise_all_to_all(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_to_all, "pairwise", request, rank, {}), rank);
  auto lane = b.lane(0);
  const int n = request.ranks;
  lane.step({out(u32(rank))}, {in(u32(rank))});
  for (int i = 1; i < n; ++i) {
    const int destination = wrap(rank + i, n);
    const int source = wrap(rank - i, n);
    lane.step({to(destination)}, {in(u32(destination))});
    lane.step({out(u32(source))}, {from(source)});
  }
  return b.finish();
}

RankPlan pairwise_all_to_all_v(const PlanRequest& request, int rank) {
  const int n = request.ranks;
  RankPlanBuilder b(make_header(Collective::all_to_all_v, "pairwise", request, rank,
                                {.lanes = 2 * u32(n - 1) + 1}),
                    rank);
  for (int i = 1; i < n; ++i) {
    const int destination = wrap(rank + i, n);
    const int source = wrap(rank - i, n);
    b.lane(2 * u32(i) - 2).step({to(destination, 0)}, {in(u32(destination))});
    b.lane(2 * u32(i) - 1).step({out(u32(source))}, {from(source, 0)});
  }
  // Its own block last: nobody waits for that.
  b.lane(2 * u32(n - 1)).step({out(u32(rank))}, {in(u32(rank))});
  return b.finish();
}

}  // namespace tutti::algorithm

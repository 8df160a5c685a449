// Send and receive, as a plan: every rank sends to the next and receives from the previous one, at
// the same time, so each direction has a lane. One rank alone sends to itself.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {

RankPlan neighbours_send_recv(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::send_recv, "neighbours", request, rank, {.lanes = 2}),
                    rank);
  const int n = request.ranks;
  b.lane(0).step({to(wrap(rank + 1, n), 0)}, {in(0)});
  b.lane(1).step({out(0)}, {from(wrap(rank - 1, n), 0)});
  return b.finish();
}

}  // namespace tutti::algorithm

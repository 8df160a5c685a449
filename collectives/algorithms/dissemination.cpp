// Dissemination barrier: in round k every rank signals the rank 2^k after it and waits for the one
// 2^k before it. After ceil(log2 n) rounds each has heard, through others, of all. D. Hensgen,
// R. Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP 17(1), 1988.
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {

RankPlan dissemination_barrier(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::barrier, "dissemination", request, rank, {}), rank);
  auto lane = b.lane(0);
  const int n = request.ranks;
  for (int distance = 1; distance < n; distance *= 2) {
    lane.signal(std::vector{wrap(rank + distance, n)});
    lane.wait(std::vector{wrap(rank - distance, n)});
  }
  return b.finish();
}

}  // namespace tutti::algorithm

// Barriers: steps without data. After a barrier each rank has heard, through others, of all.
//
//     dissemination   in round k every rank signals the rank 2^k after it and waits for the one 2^k
//                     before it. After ceil(log2 n) rounds each has heard of all.
//     hierarchical    up a binomial tree to the leader of each group, dissemination among leaders,
//                     and down the trees: log2 of the groups' number are the hops between groups,
//                     and leaders alone have links there. (Of the rounds of dissemination, each
//                     crosses somewhere from group to group.)
//
// D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP 17(1), 1988.
#include <numeric>
#include <ranges>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/groups.h"

namespace tutti::algorithm {
namespace {

/// Member `self` of these ranks hears of all of them.
void disseminate(RankPlanBuilder::LaneRef lane, const std::vector<int>& ranks, int self) {
  const int n = static_cast<int>(ranks.size());
  for (int distance = 1; distance < n; distance *= 2) {
    lane.signal(std::vector{ranks[u32(wrap(self + distance, n))]});
    lane.wait(std::vector{ranks[u32(wrap(self - distance, n))]});
  }
}

}  // namespace

RankPlan dissemination_barrier(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::barrier, "dissemination", request, rank, {}), rank);
  std::vector<int> ranks(u32(request.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  disseminate(b.lane(0), ranks, rank);
  return b.finish();
}

RankPlan hierarchical_barrier(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::barrier, "hierarchical", request, rank, {}), rank);
  const Groups groups(request, rank);
  auto lane = b.lane(0);
  const BinomialNode node(groups.size_of(groups.mine), groups.index);
  const int leader = rank - groups.index;
  for (const auto& child : node.children) lane.wait(std::vector{leader + child.label});
  if (groups.lead()) {
    disseminate(lane, groups.leaders(), groups.mine);
  } else {
    lane.signal(std::vector{leader + node.parent});
    lane.wait(std::vector{leader + node.parent});
  }
  for (const auto& child : std::views::reverse(node.children)) {
    lane.signal(std::vector{leader + child.label});
  }
  return b.finish();
}

}  // namespace tutti::algorithm

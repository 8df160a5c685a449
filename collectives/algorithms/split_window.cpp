// The work for one root, or of one, divided among all, through windows: of every buffer rank r has
// chunk r. In a broadcast it copies that chunk from the root's `in` to every `out`; in a reduction
// it sums up that chunk of all inputs, into the root's `out`. So the root's core, or the others',
// is not idle, and each byte is still moved once.
//
// *ready* and *done* messages say when that may happen. Rank r alone touches chunk r.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

RankPlan split(Collective collective, const PlanRequest& request, int rank) {
  const PlanHeader header =
      make_header(collective, "split_window", request, rank, {.pieces = u32(request.ranks)});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const auto peers = others(header.ranks, rank);
  const std::uint32_t own = u32(rank);
  meet(lane, peers);
  if (collective == Collective::reduce) {
    lane.step(std::vector{out(own).at(header.root)}, of_all_ranks(header.ranks, in(own)))
        .completes();
  } else {
    lane.step(of_all_ranks(header.ranks, out(own)), std::vector{in(own).at(header.root)});
  }
  meet(lane, peers);
  return b.finish();
}

}  // namespace

RankPlan split_window_broadcast(const PlanRequest& request, int rank) {
  return split(Collective::broadcast, request, rank);
}

RankPlan split_window_reduce(const PlanRequest& request, int rank) {
  return split(Collective::reduce, request, rank);
}

}  // namespace tutti::algorithm

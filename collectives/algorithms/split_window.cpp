// The work for one root, or of one, divided among all, through windows: of every buffer rank r has
// chunk r. In a broadcast it copies that chunk from the root's `in` to every `out`; in a reduction
// it sums up that chunk of all inputs, into the root's `out`. So the root's core, or the others',
// is not idle, and each byte is still moved once.
//
// *ready* and *done* messages say when that may happen. In place nothing changes, because chunk r
// is touched by rank r alone.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

PlanHeader header_of(Collective collective, const PlanRequest& request, int rank) {
  return make_header(collective, "split_window", request, rank, {.pieces = u32(request.ranks)});
}

}  // namespace

RankPlan split_window_broadcast(const PlanRequest& request, int rank) {
  const PlanHeader header = header_of(Collective::broadcast, request, rank);
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const auto peers = others(header.ranks, rank);
  const std::uint32_t own = u32(rank);
  meet(lane, peers);
  lane.step(of_all_ranks(header.ranks, out(own)), std::vector{in(own).at(header.root)});
  meet(lane, peers);
  return b.finish();
}

RankPlan split_window_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header = header_of(Collective::reduce, request, rank);
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const auto peers = others(header.ranks, rank);
  const std::uint32_t own = u32(rank);
  meet(lane, peers);
  lane.step(std::vector{out(own).at(header.root)}, of_all_ranks(header.ranks, in(own))).completes();
  meet(lane, peers);
  return b.finish();
}

}  // namespace tutti::algorithm

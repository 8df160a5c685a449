// Direct: every pair of ranks that have something for each other exchange it in one message over
// their own link. One latency, no forwarding, and no copies but into the slot and out of it; but a
// rank needs a link to each other rank, and a root is as busy as all others together.
//
// Sums are made in the order of the ranks, 0 to n - 1.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

RankPlan gather_all(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, "direct", request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  lane.step(and_to(peers, out(u32(rank))), std::vector{in(0)});
  for (const int q : peers) lane.step({out(u32(q))}, {from(q)});
  return b.finish();
}

RankPlan reduce_scatter(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, "direct", request, rank, {}), rank);
  auto lane = b.lane(0);
  for (const int q : others(request.ranks, rank)) lane.step({to(q)}, {in(u32(q))});
  lane.step(std::vector{out(0)}, in_rank_order(request.ranks, rank, in(u32(rank)))).completes();
  return b.finish();
}

}  // namespace

RankPlan direct_all_gather(const PlanRequest& request, int rank) {
  return gather_all(Collective::all_gather, request, rank);
}

RankPlan direct_all_gather_v(const PlanRequest& request, int rank) {
  return gather_all(Collective::all_gather_v, request, rank);
}

RankPlan direct_reduce_scatter(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter, request, rank);
}

RankPlan direct_reduce_scatter_v(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter_v, request, rank);
}

RankPlan direct_broadcast(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::broadcast, "direct", request, rank, {});
  RankPlanBuilder b(header, rank);
  if (rank == header.root) {
    b.lane(0).step(and_to(others(header.ranks, rank), out(0)), std::vector{in(0)});
  } else {
    b.lane(0).step({out(0)}, {from(header.root)});
  }
  return b.finish();
}

RankPlan direct_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::reduce, "direct", request, rank, {});
  RankPlanBuilder b(header, rank);
  if (rank == header.root) {
    b.lane(0).step(std::vector{out(0)}, in_rank_order(header.ranks, rank, in(0))).completes();
  } else {
    b.lane(0).step({to(header.root)}, {in(0)});
  }
  return b.finish();
}

RankPlan direct_gather(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::gather, "direct", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    lane.step({out(u32(rank))}, {in(0)});
    for (const int q : others(header.ranks, rank)) lane.step({out(u32(q))}, {from(q)});
  } else {
    lane.step({to(header.root)}, {in(0)});
  }
  return b.finish();
}

RankPlan direct_scatter(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::scatter, "direct", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    for (const int q : others(header.ranks, rank)) lane.step({to(q)}, {in(u32(q))});
    lane.step({out(0)}, {in(u32(rank))});
  } else {
    lane.step({out(0)}, {from(header.root)});
  }
  return b.finish();
}

RankPlan direct_all_to_all(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_to_all, "direct", request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  for (const int q : peers) lane.step({to(q)}, {in(u32(q))});
  lane.step({out(u32(rank))}, {in(u32(rank))});
  for (const int q : peers) lane.step({out(u32(q))}, {from(q)});
  return b.finish();
}

}  // namespace tutti::algorithm

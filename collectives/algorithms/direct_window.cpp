// Direct through windows: every rank reads what it wants from the `in` of the ranks that have it,
// and writes its own `out`. No byte is copied twice. (A gather is the other way about: every rank
// writes its block into the root's `out`, as the root's core alone would take longer.)
//
// A window says nothing about time, so two messages do: *ready* says that a rank has entered the
// call (and where its buffers are), *done* that another has finished with them. A rank's own copy
// comes before its *ready*: in place, where it writes what others will read, nobody reads yet.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

constexpr std::string_view kName = "direct_window";

/// The owner of a buffer that `reader` reads: ready, and waits until that is done.
void lend(RankPlanBuilder::LaneRef lane, int reader) {
  lane.signal(std::vector{reader});
  lane.wait(std::vector{reader});
}

RankPlan gather_all(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, kName, request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  lane.step({out(u32(rank))}, {in(0)});
  meet(lane, peers);
  for (const int q : peers) lane.step({out(u32(q))}, {in(0).at(q)});
  meet(lane, peers);
  return b.finish();
}

RankPlan reduce_scatter(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, kName, request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  meet(lane, peers);
  lane.step(std::vector{out(0)}, of_all_ranks(request.ranks, in(u32(rank)))).completes();
  meet(lane, peers);
  return b.finish();
}

}  // namespace

RankPlan direct_window_all_gather(const PlanRequest& request, int rank) {
  return gather_all(Collective::all_gather, request, rank);
}

RankPlan direct_window_all_gather_v(const PlanRequest& request, int rank) {
  return gather_all(Collective::all_gather_v, request, rank);
}

RankPlan direct_window_reduce_scatter(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter, request, rank);
}

RankPlan direct_window_reduce_scatter_v(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter_v, request, rank);
}

RankPlan direct_window_broadcast(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::broadcast, kName, request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    lane.step({out(0)}, {in(0)});
    meet(lane, others(header.ranks, rank));
  } else {
    const std::vector root{header.root};
    lane.wait(root);
    lane.step({out(0)}, {in(0).at(header.root)});
    lane.signal(root);
  }
  return b.finish();
}

RankPlan direct_window_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::reduce, kName, request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    const auto peers = others(header.ranks, rank);
    if (!peers.empty()) lane.wait(peers);
    lane.step(std::vector{out(0)}, of_all_ranks(header.ranks, in(0))).completes();
    if (!peers.empty()) lane.signal(peers);
  } else {
    lend(lane, header.root);
  }
  return b.finish();
}

RankPlan direct_window_gather(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::gather, kName, request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    lane.step({out(u32(rank))}, {in(0)});
    meet(lane, others(header.ranks, rank));
  } else {
    const std::vector root{header.root};
    lane.wait(root);
    lane.step({out(u32(rank)).at(header.root)}, {in(0)});
    lane.signal(root);
  }
  return b.finish();
}

RankPlan direct_window_scatter(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::scatter, kName, request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  if (rank == header.root) {
    lane.step({out(0)}, {in(u32(rank))});
    meet(lane, others(header.ranks, rank));
  } else {
    const std::vector root{header.root};
    lane.wait(root);
    lane.step({out(0)}, {in(u32(rank)).at(header.root)});
    lane.signal(root);
  }
  return b.finish();
}

RankPlan direct_window_all_to_all(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_to_all, kName, request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  lane.step({out(u32(rank))}, {in(u32(rank))});
  meet(lane, peers);
  for (const int q : peers) lane.step({out(u32(q))}, {in(u32(rank)).at(q)});
  meet(lane, peers);
  return b.finish();
}

// The lanes are those of pairwise_all_to_all_v: a call may run some pairs as there, and some as
// here (comm/bind.cpp). A reader's last word goes on a channel of its own, since the other one may
// have its block for the lender.
RankPlan direct_window_all_to_all_v(const PlanRequest& request, int rank) {
  const int n = request.ranks;
  RankPlanBuilder b(
      make_header(Collective::all_to_all_v, kName, request, rank, {.lanes = 2 * u32(n - 1) + 1}),
      rank);
  for (int i = 1; i < n; ++i) {
    const std::vector reader{wrap(rank + i, n)}, lender{wrap(rank - i, n)};
    auto lends = b.lane(2 * u32(i) - 2), reads = b.lane(2 * u32(i) - 1);
    lends.signal(reader, 0);
    lends.wait(reader, 1);
    reads.wait(lender, 0);
    reads.step({out(u32(lender.front()))}, {in(u32(rank)).at(lender.front())});
    reads.signal(lender, 1);
  }
  b.lane(2 * u32(n - 1)).step({out(u32(rank))}, {in(u32(rank))});
  return b.finish();
}

}  // namespace tutti::algorithm

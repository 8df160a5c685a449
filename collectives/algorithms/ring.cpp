// Ring: every rank talks to its two neighbours alone.
//
// Reduce-scatter: the partial sum of chunk c starts at rank c + 1 and travels once around; every
// rank on its way adds its own, and rank c, the last one, has the total. Rank r so begins by
// sending chunk r - 1, and in round k passes on chunk r - 1 - k. All-gather is the same journey
// without the sums, and all-reduce is the one after the other. Every link carries (n-1)/n of the
// data a phase, which is the least possible: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 69(2), 2009.
//
// All ranks send first, and pass on only what they can pass on; with one slot a link everyone would
// hold a full slot and wait for the next to empty its own. Hence two.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

constexpr std::uint32_t kSlots = 2;

struct Ring {
  int n, r, next, prev;
  Ring(int ranks, int rank)
      : n(ranks), r(rank), next(wrap(rank + 1, ranks)), prev(wrap(rank - 1, ranks)) {}
  /// The chunk that is `k` hops upstream.
  std::uint32_t upstream(int k) const { return u32(wrap(r - k % n, n)); }
};

/// The partial sums' journey, but for its last step.
void pass_sums_on(RankPlanBuilder::LaneRef lane, const Ring& ring) {
  lane.step({to(ring.next)}, {in(ring.upstream(1))});
  for (int k = 1; k < ring.n - 1; ++k) {
    lane.step({to(ring.next)}, {from(ring.prev), in(ring.upstream(1 + k))});
  }
}

/// The journey of what every rank has sent to its next.
void pass_copies_on(RankPlanBuilder::LaneRef lane, const Ring& ring) {
  for (int k = 1; k < ring.n - 1; ++k) {
    lane.step({out(ring.upstream(k)), to(ring.next)}, {from(ring.prev)});
  }
  lane.step({out(ring.upstream(ring.n - 1))}, {from(ring.prev)});
}

RankPlan gather_around(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, "ring", request, rank, {.slots = kSlots}), rank);
  const Ring ring(request.ranks, rank);
  if (ring.n == 1) {
    copy_alone(b, collective);
  } else {
    b.lane(0).step({out(u32(rank)), to(ring.next)}, {in(0)});
    pass_copies_on(b.lane(0), ring);
  }
  return b.finish();
}

RankPlan scatter_around(Collective collective, const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(collective, "ring", request, rank, {.slots = kSlots}), rank);
  const Ring ring(request.ranks, rank);
  if (ring.n == 1) {
    copy_alone(b, collective);
  } else {
    pass_sums_on(b.lane(0), ring);
    b.lane(0).step({out(0)}, {from(ring.prev), in(u32(rank))}).completes();
  }
  return b.finish();
}

}  // namespace

RankPlan ring_all_reduce(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_reduce, "ring", request, rank,
                                {.pieces = u32(request.ranks), .slots = kSlots}),
                    rank);
  const Ring ring(request.ranks, rank);
  const std::uint32_t own = u32(rank);
  if (ring.n == 1) {
    copy_alone(b, Collective::all_reduce);
  } else {
    pass_sums_on(b.lane(0), ring);
    b.lane(0).step({out(own), to(ring.next)}, {from(ring.prev), in(own)}).completes();
    pass_copies_on(b.lane(0), ring);
  }
  return b.finish();
}

RankPlan ring_all_gather(const PlanRequest& request, int rank) {
  return gather_around(Collective::all_gather, request, rank);
}

RankPlan ring_all_gather_v(const PlanRequest& request, int rank) {
  return gather_around(Collective::all_gather_v, request, rank);
}

RankPlan ring_reduce_scatter(const PlanRequest& request, int rank) {
  return scatter_around(Collective::reduce_scatter, request, rank);
}

RankPlan ring_reduce_scatter_v(const PlanRequest& request, int rank) {
  return scatter_around(Collective::reduce_scatter_v, request, rank);
}

}  // namespace tutti::algorithm

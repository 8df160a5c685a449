// Chain: the ranks stand in line behind the root, root, root + 1, ... (modulo n), and pass every
// tile on as soon as they have it. Tiles follow one another down the line, so a long message costs
// little more than one transfer, whatever the number of ranks; a short one costs n - 1 latencies.
// (The "pipeline" or "linear pipelined broadcast" of the MPI literature, e.g. J. Worringen,
// "Pipelining and overlapping for MPI collective operations", LCN 2003.)
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

/// Where a rank stands in the line.
struct Place {
  int to_root, from_root;  // neighbours; meaningless at the ends
  bool first, last;
  Place(const PlanHeader& h, int rank)
      : to_root(wrap(rank - 1, h.ranks)),
        from_root(wrap(rank + 1, h.ranks)),
        first(rank == h.root),
        last(from_root == h.root) {}
};

}  // namespace

RankPlan chain_broadcast(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::broadcast, "chain", request, rank, {});
  RankPlanBuilder b(header, rank);
  const Place place(header, rank);
  const Operand source = place.first ? in(0) : from(place.to_root);
  if (place.last) {
    b.lane(0).step({out(0)}, {source});
  } else {
    b.lane(0).step({out(0), to(place.from_root)}, {source});
  }
  return b.finish();
}

RankPlan chain_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::reduce, "chain", request, rank, {});
  RankPlanBuilder b(header, rank);
  const Place place(header, rank);
  const Operand destination = place.first ? out(0) : to(place.to_root);
  if (place.last) {
    b.lane(0).step({destination}, {in(0)}).completes(place.first);
  } else {
    b.lane(0).step({destination}, {from(place.from_root), in(0)}).completes(place.first);
  }
  return b.finish();
}

}  // namespace tutti::algorithm

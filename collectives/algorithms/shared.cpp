// Through memory that all ranks of a host share, for buffers that no other rank can address. A rank
// writes its data once, into its tmp, and the others read them there. Links carry signals alone.
// Over links each receiver has a copy of its own, which the sender writes: n ranks write a
// broadcast n - 1 times there, and once here.
//
// *done* messages at the end of a tile say that tmp may be written again. A root writes four pieces
// of each tile, so that the others have something to read while it still writes. Where all write,
// that brings nothing (docs/experiments.md#shared-tmp).
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

constexpr std::string_view kName = "shared";

RankPlan alone(RankPlanBuilder& b, Collective collective) {
  copy_alone(b, collective);
  return b.finish();
}

}  // namespace

RankPlan shared_broadcast(const PlanRequest& request, int rank) {
  const std::uint32_t pieces = request.ranks > 1 ? 4 : 1;
  RankPlanBuilder b(make_header(Collective::broadcast, kName, request, rank, {.pieces = pieces}),
                    rank);
  if (request.ranks == 1) return alone(b, Collective::broadcast);
  if (rank == request.root) b.reserve_tmp(pieces);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  const std::vector root{request.root};
  for (std::uint32_t p = 0; p < pieces; ++p) {
    if (rank == request.root) {
      lane.step({tmp(p), out(p)}, {in(p)});
      lane.signal(peers);
    } else {
      lane.wait(root);
      lane.step({out(p)}, {tmp(p).at(request.root)});
    }
  }
  if (rank == request.root) {
    lane.wait(peers);
  } else {
    lane.signal(root);
  }
  return b.finish();
}

RankPlan shared_all_gather(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_gather, kName, request, rank, {}), rank);
  if (request.ranks == 1) return alone(b, Collective::all_gather);
  b.reserve_tmp(1);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  lane.step({tmp(0), out(u32(rank))}, {in(0)});
  lane.signal(peers);
  for (const int q : peers) {
    lane.wait(std::vector{q});
    lane.step({out(u32(q))}, {tmp(0).at(q)});
  }
  meet(lane, peers);
  return b.finish();
}

// In two shots, as two_shot. tmp has this rank's input, for the ranks that sum up its chunks, and
// after that, at chunk n + rank, its sum. In place, `in` is not read any more once there are sums.
RankPlan shared_all_reduce(const PlanRequest& request, int rank) {
  const std::uint32_t n = u32(request.ranks), own = u32(rank);
  RankPlanBuilder b(make_header(Collective::all_reduce, kName, request, rank, {.pieces = n}), rank);
  if (request.ranks == 1) return alone(b, Collective::all_reduce);
  b.reserve_tmp(n + 1);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  for (const int q : peers) {
    lane.step({tmp(u32(q))}, {in(u32(q))});
    lane.signal(std::vector{q});
  }
  lane.wait(peers);
  std::vector<Operand> inputs;
  for (int q = 0; q < request.ranks; ++q) {
    inputs.push_back(q == rank ? in(own) : tmp(own).at(q));
  }
  lane.step(std::vector{out(own), tmp(n)}, inputs).completes();
  lane.signal(peers);
  for (const int q : peers) {
    lane.wait(std::vector{q});
    lane.step({out(u32(q))}, {tmp(n).at(q)});
  }
  meet(lane, peers);
  return b.finish();
}

}  // namespace tutti::algorithm

// All-reduce in one shot or two, and reduce in two, for messages so short, or ranks so close, that
// the number of exchanges decides the cost.
//
// One-shot: everyone sends its whole input to everyone, and everyone sums up everything: one
// exchange, (n-1) N bytes received by each rank. Two-shot: rank r sums up chunk r alone and then
// sends it to all: two exchanges, 2 (n-1)/n N bytes. (Both are known from TensorRT-LLM's and
// PyTorch's custom all-reduce kernels for NVLink; the literature has two-shot as "all-to-all based
// reduce-scatter and all-gather".) A reduce in two shots sends the sums to the root alone.
//
// All sum up the same numbers in the order of the ranks, so one-shot has the same bits everywhere.
// Over links, the others get a rank's scaled input rounded, because storing rounds it. So the rank
// stores its own input in `out` first, if the operator may be one that scales.
//
// The windowed forms leave the data where it is: one-shot reads all inputs, two-shot reads all
// inputs of its chunk and writes the sum into every `out`. *ready* and *done* messages say when
// that may happen. In place, one-shot must not write `out` before all have read `in`, which is the
// same memory: the sum waits in tmp. In two-shot, rank r alone touches chunk r.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
RankPlan one_shot_all_reduce(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_reduce, "one_shot", request, rank, {}), rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  if (peers.empty()) {
    copy_alone(b, Collective::all_reduce);
  } else {
    const Operand own = request.scales ? out(0) : in(0);
    if (request.scales) {
      lane.step(and_to(peers, own), std::vector{in(0)});
    } else {
      lane.step(to_all(peers), std::vector{own});
    }
    lane.step(std::vector{out(0)}, in_rank_order(request.ranks, rank, own)).completes();
  }
  return b.finish();
}

RankPlan two_shot_all_reduce(const PlanRequest& request, int rank) {
  // Two slots: all have sent their chunks before anyone reads one, and send their sum while others
  // still have not read theirs.
  RankPlanBuilder b(make_header(Collective::all_reduce, "two_shot", request, rank,
                                {.pieces = u32(request.ranks), .slots = 2}),
                    rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  const std::uint32_t own = u32(rank);
  for (const int q : peers) lane.step({to(q)}, {in(u32(q))});
  lane.step(and_to(peers, out(own)), in_rank_order(request.ranks, rank, in(own))).completes();
  for (const int q : peers) lane.step({out(u32(q))}, {from(q)});
  return b.finish();
}

RankPlan two_shot_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header =
      make_header(Collective::reduce, "two_shot", request, rank, {.pieces = u32(request.ranks)});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  const std::uint32_t own = u32(rank);
  for (const int q : peers) lane.step({to(q)}, {in(u32(q))});
  const bool is_root = rank == header.root;
  lane.step(std::vector{is_root ? out(own) : to(header.root)},
            in_rank_order(request.ranks, rank, in(own)))
      .completes();
  if (is_root) {
    for (const int q : peers) lane.step({out(u32(q))}, {from(q)});
  }
  return b.finish();
}

RankPlan one_shot_window_all_reduce(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_reduce, "one_shot_window", request, rank, {}),
                    rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  if (peers.empty()) {
    copy_alone(b, Collective::all_reduce);
  } else {
    const Operand sum = tmp(b.reserve_tmp(1));
    meet(lane, peers);
    lane.step(std::vector{sum}, of_all_ranks(request.ranks, in(0))).completes();
    meet(lane, peers);
    lane.step({out(0)}, {sum});
  }
  return b.finish();
}

RankPlan two_shot_window_all_reduce(const PlanRequest& request, int rank) {
  RankPlanBuilder b(make_header(Collective::all_reduce, "two_shot_window", request, rank,
                                {.pieces = u32(request.ranks)}),
                    rank);
  auto lane = b.lane(0);
  const auto peers = others(request.ranks, rank);
  const std::uint32_t own = u32(rank);
  meet(lane, peers);
  lane.step(of_all_ranks(request.ranks, out(own)), of_all_ranks(request.ranks, in(own)))
      .completes();
  meet(lane, peers);
  return b.finish();
}

}  // namespace tutti::algorithm

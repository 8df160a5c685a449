// All-reduce and reduce-scatter in 8 bits: for links that are slow beside the cores, as those
// between hosts.
//
// The all-reduce is two_shot (shots.cpp) in a compressed plan. Rank r sums up everybody's chunk r
// in float32, in the order of the ranks: so every input is compressed once and every sum once. (A
// ring would compress every partial sum anew.) The owner of a chunk compresses its own input, too,
// and keeps what it sends: all ranks have the same bits, whoever owns which chunk. The error:
// core/compressed.h has that of one compression; docs/low-precision.md that of the call.
//
// Three lanes compress, sum up and send, so that tiles overlap. Sums have links of their own, as
// lanes do.
//
// The reduce-scatter is the first half of that, in two lanes: direct (direct.cpp) in a compressed
// plan. The sum stays where it is made, so nothing compresses it.
//
// The scheme (quantise, all-to-all, sum, quantise, all-gather) is known from 1-bit Adam (Tang and
// others, 2021) and from ZeRO++ (Wang and others, 2023).
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

constexpr std::uint8_t kInputs = 0, kSums = 1;  // channels

/// All ranks' inputs, in their order: `mine`, and those that come.
std::vector<Operand> all_inputs(int ranks, int rank, Operand mine) {
  std::vector<Operand> sources = in_rank_order(ranks, rank, mine);
  for (Operand& o : sources) {
    if (o.is_link()) o.channel = kInputs;
  }
  return sources;
}

}  // namespace

RankPlan two_shot_compressed_all_reduce(const PlanRequest& request, int rank) {
  constexpr std::uint32_t kLanes = 3;
  RankPlanBuilder b(
      make_header(Collective::all_reduce, "two_shot_compressed", request, rank,
                  {.pieces = u32(request.ranks), .lanes = kLanes, .format = Format::compressed}),
      rank);
  const auto peers = others(request.ranks, rank);
  const std::uint32_t own = u32(rank);
  if (peers.empty()) {
    copy_alone(b, Collective::all_reduce);
    return b.finish();
  }
  auto inputs = b.lane(0), sums = b.lane(1), results = b.lane(2);
  for (const int q : peers) inputs.step({to(q, kInputs)}, {in(u32(q))});
  const Operand mine = tmp(b.reserve_tmp(1));
  sums.step({mine}, {in(own)});
  std::vector<Operand> destinations{out(own)};
  for (const int q : peers) destinations.push_back(to(q, kSums));
  sums.step(destinations, all_inputs(request.ranks, rank, mine)).completes();
  for (const int q : peers) results.step({out(u32(q))}, {from(q, kSums)});
  return b.finish();
}

RankPlan direct_compressed_reduce_scatter(const PlanRequest& request, int rank) {
  constexpr std::uint32_t kLanes = 2;
  RankPlanBuilder b(make_header(Collective::reduce_scatter, "direct_compressed", request, rank,
                                {.lanes = kLanes, .format = Format::compressed}),
                    rank);
  const auto peers = others(request.ranks, rank);
  if (peers.empty()) {
    copy_alone(b, Collective::reduce_scatter);
    return b.finish();
  }
  auto inputs = b.lane(0), sums = b.lane(1);
  for (const int q : peers) inputs.step({to(q, kInputs)}, {in(u32(q))});
  const Operand mine = tmp(b.reserve_tmp(1));
  sums.step({mine}, {in(u32(rank))});
  sums.step(std::vector{out(0)}, all_inputs(request.ranks, rank, mine)).completes();
  return b.finish();
}

}  // namespace tutti::algorithm

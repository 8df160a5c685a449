// Recursive halving: partners exchange halves of what they still care about, and reduce the half
// that they keep; after log2(n) rounds everyone cares about 1/n of the data, reduced over all. That
// is a reduce-scatter; all-reduce then runs the rounds backwards to gather the results (by
// recursive doubling). Bandwidth-optimal, in 2 log2(n) rounds: R. Rabenseifner, "Optimization of
// collective reduction operations", ICCS 2004.
//
// All-reduce begins with the nearest partners, so that the large messages stay local; which rank
// ends up with which chunk does not matter there. Reduce-scatter has to end with block r on rank r,
// so it begins with the farthest. Any number of ranks: see fold.h.
//
// In all-reduce, the last sum goes out as it is made, while the slot before may be unread: two
// slots.
#include <algorithm>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/fold.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

struct Round {
  int partner;  // a core
  Run keep, give;
};

/// The halving rounds of `core`, nearest partner first, over `cores` chunks.
std::vector<Round> nearest_first(int core, int cores) {
  std::vector<Round> rounds;
  Run mine{0, u32(cores)};
  for (int distance = 1; distance < cores; distance *= 2) {
    const std::uint32_t half = mine.count / 2;
    const Run low{mine.first, half};
    const Run high{mine.first + half, half};
    const bool keep_low = (core & distance) == 0;
    rounds.push_back({core ^ distance, keep_low ? low : high, keep_low ? high : low});
    mine = rounds.back().keep;
  }
  return rounds;
}

/// What a folded-in rank does: it hands over everything and hears the results as its neighbour,
/// the core, gets them.
void follow(RankPlanBuilder::LaneRef lane, int neighbour, const std::vector<Round>& rounds) {
  const Run all{0, 2 * rounds.front().keep.count};
  lane.step({to(neighbour)}, {in(0)}).span(all.count);
  const Run last = rounds.back().keep;
  lane.step({out(last.first)}, {from(neighbour)});
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    lane.step({out(round->give.first)}, {from(neighbour)}).span(round->give.count);
  }
}

}  // namespace

RankPlan recursive_halving_all_reduce(const PlanRequest& request, int rank) {
  const Fold fold(request.ranks);
  const std::uint32_t cores = u32(fold.cores);
  const std::uint32_t widest = fold.extras > 0 ? cores : std::max(1U, cores / 2);
  RankPlanBuilder b(make_header(Collective::all_reduce, "recursive_halving", request, rank,
                                {.pieces = cores, .slots = 2, .widest = widest}),
                    rank);
  auto lane = b.lane(0);
  if (request.ranks == 1) {
    copy_alone(b, Collective::all_reduce);
    return b.finish();
  }
  if (fold.is_extra(rank)) {
    follow(lane, rank - 1, nearest_first(fold.core_of(rank - 1), fold.cores));
    return b.finish();
  }
  const auto rounds = nearest_first(fold.core_of(rank), fold.cores);
  const bool paired = fold.has_extra(rank);
  if (paired) lane.step({out(0)}, {in(0), from(rank + 1)}).span(cores);
  for (const Round& round : rounds) {
    // The partial sums lie in `in` until something was added to them.
    const bool raw = !paired && &round == &rounds.front();
    const Operand give = raw ? in(round.give.first) : out(round.give.first);
    const Operand keep = raw ? in(round.keep.first) : out(round.keep.first);
    const int partner = fold.rank_of(round.partner);
    lane.step({to(partner)}, {give}).span(round.give.count);
    if (&round != &rounds.back()) {
      lane.step({out(round.keep.first)}, {keep, from(partner)}).span(round.keep.count);
      continue;
    }
    // The last sum is the result, and the first to be gathered again.
    std::vector<Operand> destinations = {out(round.keep.first), to(partner)};
    if (paired) destinations.push_back(to(rank + 1));
    lane.step(destinations, std::vector{keep, from(partner)}).completes();
  }
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const int partner = fold.rank_of(round->partner);
    if (round != rounds.rbegin()) {
      lane.step({to(partner)}, {out(round->keep.first)}).span(round->keep.count);
    }
    std::vector<Operand> destinations = {out(round->give.first)};
    if (paired) destinations.push_back(to(rank + 1));
    lane.step(destinations, std::vector{from(partner)}).span(round->give.count);
  }
  return b.finish();
}

RankPlan recursive_halving_reduce_scatter(const PlanRequest& request, int rank) {
  const int n = request.ranks;
  const Fold fold(n);
  const std::uint32_t widest = fold.extras > 0 ? u32(n) : std::max(1U, u32(fold.cores / 2));
  RankPlanBuilder b(make_header(Collective::reduce_scatter, "recursive_halving", request, rank,
                                {.widest = widest}),
                    rank);
  auto lane = b.lane(0);
  if (n == 1) {
    copy_alone(b, Collective::reduce_scatter);
    return b.finish();
  }
  if (fold.is_extra(rank)) {
    lane.step({to(rank - 1)}, {in(0)}).span(u32(n));
    lane.step({out(0)}, {from(rank - 1)});
    return b.finish();
  }
  const int core = fold.core_of(rank);
  bool stored = fold.has_extra(rank);  // whether the partial sums lie in tmp; else in `in`
  // tmp holds what the core cares about once something was added to it; block x lies in tmp[x -
  // base].
  std::uint32_t base = 0;
  if (stored) {
    b.reserve_tmp(u32(n));
    lane.step({tmp(0)}, {in(0), from(rank + 1)}).span(u32(n));
  }
  const auto partial = [&](std::uint32_t block) { return stored ? tmp(block - base) : in(block); };
  Cores mine{0, fold.cores};
  for (int distance = fold.cores / 2; distance > 1; distance /= 2) {
    const Cores low{mine.first, distance};
    const Cores high{mine.first + distance, distance};
    const bool keep_low = (core & distance) == 0;
    mine = keep_low ? low : high;
    const Run keep = fold.blocks(mine);
    const Run give = fold.blocks(keep_low ? high : low);
    const int partner = fold.rank_of(core ^ distance);
    lane.step({to(partner)}, {partial(give.first)}).span(give.count).shaped_as(in(give.first));
    if (!stored) {
      base = keep.first;
      b.reserve_tmp(keep.count);
    }
    lane.step({tmp(keep.first - base)}, {partial(keep.first), from(partner)})
        .span(keep.count)
        .shaped_as(in(keep.first));
    stored = true;
  }
  // The last round, block by block: a core has one to keep, or two with its extra neighbour's.
  const int partner_core = core ^ 1;
  const int partner = fold.rank_of(partner_core);
  const Run keep = fold.blocks({core, 1});
  const Run give = fold.blocks({partner_core, 1});
  for (std::uint32_t i = 0; i < std::max(keep.count, give.count); ++i) {
    if (i < give.count) {
      lane.step({to(partner)}, {partial(give.first + i)}).shaped_as(in(give.first + i));
    }
    if (i < keep.count) {
      const Operand result = i == 0 ? out(0) : to(rank + 1);
      lane.step({result}, {partial(keep.first + i), from(partner)})
          .shaped_as(in(keep.first + i))
          .completes();
    }
  }
  return b.finish();
}

}  // namespace tutti::algorithm

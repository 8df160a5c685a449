// Bruck: all-gather in ceil(log2 n) rounds for any n. Before round k, rank r has the 2^k blocks
// r, r + 1, ... (modulo n); it sends them to rank r - 2^k and receives the next ones from rank
// r + 2^k. The last round sends only as many as are missing. J. Bruck, C.-T. Ho, S. Kipnis,
// E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", IEEE TPDS 8(11), 1997.
//
// The original gathers in a rotated buffer, because a message has to be one piece of memory, and
// rotates back at the end. Here blocks have names: sender and receiver both see where the run
// r, r + 1, ... passes n - 1 and goes on at 0, and cut the message there. So everything is received
// where it belongs, and nothing is copied.
//
// Reduce-scatter is the same in reverse (the idea of NCCL's PAT): the rounds backwards, messages in
// the other direction, and sums where there were copies.
#include <algorithm>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

struct Round {
  int distance;
  int count;  // blocks
};

std::vector<Round> rounds_of(int n) {
  std::vector<Round> rounds;
  for (int d = 1; d < n; d *= 2) rounds.push_back({d, std::min(d, n - d)});
  return rounds;
}

std::uint32_t widest_of(int n) {
  std::uint32_t widest = 1;
  for (const Round& r : rounds_of(n)) widest = std::max(widest, u32(r.count));
  return widest;
}

/// A part of a message: blocks at offsets first ... first + count - 1.
struct BlockRun {
  int first, count;
};

/// Offsets 0 ... count - 1, cut before each of `cuts` that lies among them.
std::vector<BlockRun> parts_of(int count, std::vector<int> cuts) {
  cuts.push_back(count);
  std::sort(cuts.begin(), cuts.end());
  std::vector<BlockRun> parts;
  int begin = 0;
  for (const int cut : cuts) {
    if (cut <= begin || cut > count) continue;
    parts.push_back({begin, cut - begin});
    begin = cut;
  }
  return parts;
}

/// Sends and receives the parts alternately: with one slot a link, all ranks that send twice before
/// they receive would wait for each other.
template <class Send, class Receive>
void in_turn(const std::vector<BlockRun>& sent, Send send, const std::vector<BlockRun>& received,
             Receive receive) {
  for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
    if (i < sent.size()) send(sent[i]);
    if (i < received.size()) receive(received[i]);
  }
}

}  // namespace

RankPlan bruck_all_gather(const PlanRequest& request, int rank) {
  const int n = request.ranks;
  RankPlanBuilder b(
      make_header(Collective::all_gather, "bruck", request, rank, {.widest = widest_of(n)}), rank);
  auto lane = b.lane(0);
  if (n == 1) {
    copy_alone(b, Collective::all_gather);
    return b.finish();
  }
  for (const Round& round : rounds_of(n)) {
    const int destination = wrap(rank - round.distance, n);
    const int source = wrap(rank + round.distance, n);
    const auto send = [&](const BlockRun& p) {
      lane.step({to(destination)}, {out(u32(wrap(rank + p.first, n)))}).span(u32(p.count));
    };
    const auto receive = [&](const BlockRun& p) {
      lane.step({out(u32(wrap(source + p.first, n)))}, {from(source)}).span(u32(p.count));
    };
    if (round.distance == 1) {
      lane.step({out(u32(rank)), to(destination)}, {in(0)});
      receive({0, 1});
    } else {
      in_turn(parts_of(round.count, {n - rank}), send, parts_of(round.count, {n - source}),
              receive);
    }
  }
  return b.finish();
}

RankPlan bruck_reduce_scatter(const PlanRequest& request, int rank) {
  const int n = request.ranks;
  RankPlanBuilder b(
      make_header(Collective::reduce_scatter, "bruck", request, rank, {.widest = widest_of(n)}),
      rank);
  auto lane = b.lane(0);
  if (n == 1) {
    copy_alone(b, Collective::reduce_scatter);
    return b.finish();
  }
  auto rounds = rounds_of(n);
  std::reverse(rounds.begin(), rounds.end());
  // The sum of block r + j lies in tmp[j] for j < summed, on all ranks alike; of the others a rank
  // has its own input alone.
  int summed = 0;
  const auto block = [&](int j) { return u32(wrap(rank + j, n)); };
  const auto partial = [&](int j) { return j < summed ? tmp(u32(j)) : in(block(j)); };
  for (const Round& round : rounds) {
    const int d = round.distance;
    const int destination = wrap(rank + d, n);
    const int source = wrap(rank - d, n);
    // Both sides cut where the run of blocks passes n - 1, where the sender's sums end (at its
    // offset `summed`, d less at the receiver), and where the receiver's do.
    const auto send = [&](const BlockRun& p) {
      const int j = d + p.first;
      lane.step({to(destination)}, {partial(j)}).span(u32(p.count)).shaped_as(in(block(j)));
    };
    const auto receive = [&](const BlockRun& p) {
      const int j = p.first;
      const Operand result = d == 1 ? out(0) : tmp(u32(j));
      lane.step({result}, {partial(j), from(source)})
          .span(u32(p.count))
          .shaped_as(in(block(j)))
          .completes(d == 1);
    };
    in_turn(parts_of(round.count, {n - destination, summed - d, summed}), send,
            parts_of(round.count, {n - rank, summed - d, summed}), receive);
    summed = std::max(summed, round.count);
  }
  b.reserve_tmp(n > 2 ? u32(summed) : 0);
  return b.finish();
}

}  // namespace tutti::algorithm

// Binomial tree: gather and scatter through log2(n) generations, so that the root has log2(n) links
// instead of n - 1. Ranks have labels from the root on. (The classic of MPI_Gather and MPI_Scatter;
// e.g. R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.)
//
// A rank hands each block on as it arrives, in the order of the labels, from slot to slot: nothing
// is stored on the way, and the blocks follow one another through the tree.
#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

BinomialNode node_of(const PlanHeader& h, int rank) {
  return {h.ranks, wrap(rank - h.root, h.ranks)};
}
int rank_of(const PlanHeader& h, int label) { return wrap(label + h.root, h.ranks); }

}  // namespace

RankPlan binomial_gather(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::gather, "binomial", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const BinomialNode node = node_of(header, rank);
  const bool root = node.parent < 0;
  const int parent = rank_of(header, node.parent);
  lane.step({root ? out(u32(rank)) : to(parent)}, {in(0)});
  for (const auto [label, subtree] : node.children) {
    const int child = rank_of(header, label);
    for (int i = 0; i < subtree; ++i) {
      if (root) {
        lane.step({out(u32(rank_of(header, label + i)))}, {from(child)});
      } else {
        lane.step({to(parent)}, {from(child)}).shaped_as(in(0));
      }
    }
  }
  return b.finish();
}

RankPlan binomial_scatter(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::scatter, "binomial", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const BinomialNode node = node_of(header, rank);
  const bool root = node.parent < 0;
  const int parent = rank_of(header, node.parent);
  lane.step({out(0)}, {root ? in(u32(rank)) : from(parent)});
  for (const auto [label, subtree] : node.children) {
    const int child = rank_of(header, label);
    for (int i = 0; i < subtree; ++i) {
      if (root) {
        lane.step({to(child)}, {in(u32(rank_of(header, label + i)))});
      } else {
        lane.step({to(child)}, {from(parent)}).shaped_as(out(0));
      }
    }
  }
  return b.finish();
}

}  // namespace tutti::algorithm

// Binomial tree: gather and scatter through log2(n) generations, so that the root has log2(n) links
// instead of n - 1. Ranks have the labels v = 0 (the root) ... n - 1; v's parent is v without its
// lowest one bit, and its subtree are the labels v ... v + lowest bit - 1. (The classic of
// MPI_Gather and MPI_Scatter; e.g. R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005.)
//
// A rank hands each block on as it arrives, in the order of the labels, from slot to slot: nothing
// is stored on the way, and the blocks follow one another through the tree.
#include <algorithm>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

struct Child {
  int rank;
  int label;
  int blocks;  // of its subtree
};

struct Node {
  int parent = -1;  // none: the root
  std::vector<Child> children;

  Node(const PlanHeader& h, int rank) {
    const int n = h.ranks;
    const int v = wrap(rank - h.root, n);
    const int lowest = v == 0 ? n : v & -v;
    if (v != 0) parent = wrap(v - lowest + h.root, n);
    for (int bit = 1; bit < lowest && v + bit < n; bit *= 2) {
      children.push_back({wrap(v + bit + h.root, n), v + bit, std::min(bit, n - v - bit)});
    }
  }
};

}  // namespace

RankPlan binomial_gather(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::gather, "binomial", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const Node node(header, rank);
  const bool root = node.parent < 0;
  lane.step({root ? out(u32(rank)) : to(node.parent)}, {in(0)});
  for (const Child& child : node.children) {
    for (int i = 0; i < child.blocks; ++i) {
      const std::uint32_t block = u32(wrap(child.label + i + header.root, header.ranks));
      if (root) {
        lane.step({out(block)}, {from(child.rank)});
      } else {
        lane.step({to(node.parent)}, {from(child.rank)}).shaped_as(in(0));
      }
    }
  }
  return b.finish();
}

RankPlan binomial_scatter(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::scatter, "binomial", request, rank, {});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const Node node(header, rank);
  const bool root = node.parent < 0;
  lane.step({out(0)}, {root ? in(u32(rank)) : from(node.parent)});
  for (const Child& child : node.children) {
    for (int i = 0; i < child.blocks; ++i) {
      const std::uint32_t block = u32(wrap(child.label + i + header.root, header.ranks));
      if (root) {
        lane.step({to(child.rank)}, {in(block)});
      } else {
        lane.step({to(child.rank)}, {from(node.parent)}).shaped_as(out(0));
      }
    }
  }
  return b.finish();
}

}  // namespace tutti::algorithm

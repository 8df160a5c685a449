// Double binary tree: two trees over the same ranks, each for one half of the data, such that a
// rank that is interior in one is a leaf in the other. So nobody's link idles as a leaf's does in a
// single tree: all ranks send and receive about the whole message once, in O(log n) time.
// P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35(12), 2009.
//
// The root stands outside, as the parent of both trees' tops; the other ranks have the labels
// v = 1 ... m, m = n - 1, counted from the root. A tree is the in-order numbered binary tree over
// positions w = 1 ... m: the height of w is the number of its trailing zero bits, so odd positions
// are leaves. In tree 0 the position is the label; tree 1 is mirrored (m even) or shifted by one (m
// odd), which swaps odd and even.
//
// All-reduce reduces up and broadcasts down, in lanes of their own, so that one tile goes up while
// the one before comes down.
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"

namespace tutti::algorithm {
namespace {

constexpr int kTrees = 2;

int position(int tree, int m, int v) {
  if (tree == 0) return v;
  if (m % 2 == 0) return m + 1 - v;
  return v == 1 ? m : v - 1;
}

int label(int tree, int m, int w) {
  if (tree == 0) return w;
  if (m % 2 == 0) return m + 1 - w;
  return w == m ? 1 : w + 1;
}

/// A rank's neighbours in one tree.
struct Node {
  int parent = -1;  // none: the root
  std::vector<int> children;

  Node(int tree, int n, int root, int rank) {
    const int m = n - 1;
    const int v = wrap(rank - root, n);
    const auto rank_at = [&](int w) { return wrap(label(tree, m, w) + root, n); };
    if (v == 0) {
      if (m > 0) children.push_back(rank_at(power_of_two_in(m)));
      return;
    }
    const int w = position(tree, m, v);
    const int bit = w & -w;
    int up = (w ^ bit) | (bit << 1);
    if (up > m) up = w ^ bit;  // the tree is cut off at m: the next ancestor that there is
    parent = up == 0 ? root : rank_at(up);
    if (bit == 1) return;
    children.push_back(rank_at(w - bit / 2));
    int down = bit / 2;
    while (down > 0 && w + down > m) down /= 2;
    if (down > 0) children.push_back(rank_at(w + down));
  }
};

/// in[t] and what the children send, reduced.
std::vector<Operand> own_and_children(const Node& node, int tree) {
  std::vector<Operand> sources = {in(u32(tree))};
  for (const int c : node.children) sources.push_back(from(c, static_cast<std::uint8_t>(tree)));
  return sources;
}

/// out[t] and all children.
std::vector<Operand> out_and_children(const Node& node, int tree) {
  std::vector<Operand> destinations = {out(u32(tree))};
  for (const int c : node.children) destinations.push_back(to(c, static_cast<std::uint8_t>(tree)));
  return destinations;
}

}  // namespace

RankPlan tree_all_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::all_reduce, "tree", request, rank,
                                        {.pieces = kTrees, .lanes = 2 * kTrees});
  RankPlanBuilder b(header, rank);
  for (int tree = 0; tree < kTrees; ++tree) {
    const Node node(tree, header.ranks, 0, rank);
    auto up = b.lane(2 * u32(tree));
    auto down = b.lane(2 * u32(tree) + 1);
    const auto channel = static_cast<std::uint8_t>(tree);
    const auto sources = own_and_children(node, tree);
    const auto destinations = out_and_children(node, tree);
    if (node.parent < 0) {
      up.step(destinations, sources).completes();
    } else {
      up.step(std::vector{to(node.parent, channel)}, sources);
      down.step(destinations, std::vector{from(node.parent, channel)});
    }
  }
  return b.finish();
}

RankPlan tree_broadcast(const PlanRequest& request, int rank) {
  const PlanHeader header = make_header(Collective::broadcast, "tree", request, rank,
                                        {.pieces = kTrees, .lanes = kTrees});
  RankPlanBuilder b(header, rank);
  for (int tree = 0; tree < kTrees; ++tree) {
    const Node node(tree, header.ranks, header.root, rank);
    const Operand source = node.parent < 0 ? in(u32(tree)) : from(node.parent);
    b.lane(u32(tree)).step(out_and_children(node, tree), std::vector{source});
  }
  return b.finish();
}

RankPlan tree_reduce(const PlanRequest& request, int rank) {
  const PlanHeader header =
      make_header(Collective::reduce, "tree", request, rank, {.pieces = kTrees, .lanes = kTrees});
  RankPlanBuilder b(header, rank);
  for (int tree = 0; tree < kTrees; ++tree) {
    const Node node(tree, header.ranks, header.root, rank);
    const bool top = node.parent < 0;
    const Operand destination = top ? out(u32(tree)) : to(node.parent);
    b.lane(u32(tree)).step(std::vector{destination}, own_and_children(node, tree)).completes(top);
  }
  return b.finish();
}

}  // namespace tutti::algorithm

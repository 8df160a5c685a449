// The table of algorithms.
#include "collectives/algorithms.h"

#include <utility>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical.h"
#include "collectives/algorithms/textbook.h"

namespace tutti {
namespace {

using namespace algorithm;  // NOLINT: the table is about nothing else

constexpr Family kRings = {{ring_all_reduce, textbook::exchange_twice},
                           {ring_all_gather, textbook::exchange},
                           {ring_reduce_scatter, textbook::exchange},
                           {chain_broadcast, textbook::chain_broadcast},
                           {chain_reduce, textbook::chain_reduce}};
constexpr Family kLogarithmic = {
    {tree_all_reduce, textbook::tree_all_reduce},
    {recursive_doubling_all_gather, textbook::recursive_doubling_all_gather},
    {bruck_reduce_scatter, textbook::exchange},
    {tree_broadcast, textbook::tree_broadcast},
    {tree_reduce, textbook::tree_reduce}};
constexpr Family kWindows = {{two_shot_window_all_reduce, textbook::exchange},
                             {direct_window_all_gather, textbook::read_others},
                             {direct_window_reduce_scatter, textbook::read_others},
                             {direct_window_broadcast, textbook::read_root},
                             {direct_window_reduce, textbook::root_reads}};

constexpr char kHierarchical[] = "hierarchical";
constexpr char kHierarchicalTree[] = "hierarchical_tree";
constexpr char kHierarchicalWindow[] = "hierarchical_window";

template <const char* kName, const Family& kInner, const Family& kOuter>
RankPlan composed(const PlanRequest& request, int rank) {
  return compose_hierarchical(request, kName, kInner, kOuter, rank);
}
template <const Family& kInner, const Family& kOuter>
Traffic composed_traffic(const PlanRequest& request, int rank) {
  return hierarchical_traffic(request, kInner, kOuter, rank);
}

/// What a plan's steps reach: links alone, or other ranks' memory with links for signals alone.
enum class Reach : bool { links, windows };
using Hops = int (*)(int ranks);

/// An algorithm that has one slice, or...
template <auto kGenerate, auto kTextbook>
constexpr Algorithm one(Collective c, std::string_view name, Reach reach, Hops hops,
                        std::string_view summary) {
  return {c, name, summary, reach == Reach::windows, false, kGenerate, kTextbook, hops};
}
/// ... one for each lane that is asked for.
template <auto kGenerate, auto kTextbook>
constexpr Algorithm many(Collective c, std::string_view name, Reach reach, Hops hops,
                         std::string_view summary) {
  return {c,
          name,
          summary,
          reach == Reach::windows,
          true,
          sliced<kGenerate>,
          sliced_traffic<kTextbook>,
          hops};
}
template <const char* kName, const Family& kFamily>
constexpr Algorithm nested(Collective c, Reach reach, std::string_view summary) {
  return one<composed<kName, kFamily, kFamily>, composed_traffic<kFamily, kFamily>>(
      c, kName, reach, nullptr, summary);
}

constexpr Algorithm kAlgorithms[] = {
    many<ring_all_reduce, textbook::exchange_twice>(
        Collective::all_reduce, "ring", Reach::links, textbook::around_twice,
        "Sums travel around a ring, then the results: least bytes, 2(n-1) hops"),
    one<tree_all_reduce, textbook::tree_all_reduce>(
        Collective::all_reduce, "tree", Reach::links, textbook::up_and_down,
        "Up and down two binary trees at once: near least bytes, 4 log2 n hops"),
    many<recursive_doubling_all_reduce, textbook::recursive_doubling_all_reduce>(
        Collective::all_reduce, "recursive_doubling", Reach::links, textbook::doubling,
        "Whole vectors between partners at distance 1, 2, 4, ...: log2 n hops"),
    one<recursive_halving_all_reduce, textbook::recursive_halving_all_reduce>(
        Collective::all_reduce, "recursive_halving", Reach::links, textbook::halving_and_doubling,
        "Halves between partners, then back: least bytes, 2 log2 n hops"),
    many<one_shot_all_reduce, textbook::exchange>(Collective::all_reduce, "one_shot", Reach::links,
                                                  textbook::one_hop,
                                                  "Everyone sends everything to everyone: 1 hop"),
    many<two_shot_all_reduce, textbook::exchange_twice>(
        Collective::all_reduce, "two_shot", Reach::links, textbook::two_hops,
        "Everyone sums up a chunk and sends it to everyone: 2 hops, least bytes"),
    many<one_shot_window_all_reduce, textbook::read_others>(
        Collective::all_reduce, "one_shot_window", Reach::windows, textbook::two_hops,
        "Everyone reads all inputs where they are"),
    many<two_shot_window_all_reduce, textbook::exchange>(
        Collective::all_reduce, "two_shot_window", Reach::windows, textbook::two_hops,
        "Everyone sums up a chunk where it is and writes it to all: no copies"),
    nested<kHierarchical, kRings>(
        Collective::all_reduce, Reach::links,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, by rings"),
    nested<kHierarchicalTree, kLogarithmic>(
        Collective::all_reduce, Reach::links,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, in O(log n) hops"),
    nested<kHierarchicalWindow, kWindows>(
        Collective::all_reduce, Reach::windows,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, through windows"),
    many<ring_all_gather, textbook::exchange>(Collective::all_gather, "ring", Reach::links,
                                              textbook::around,
                                              "Blocks travel around a ring: n-1 hops"),
    one<recursive_doubling_all_gather, textbook::recursive_doubling_all_gather>(
        Collective::all_gather, "recursive_doubling", Reach::links, textbook::doubling,
        "Partners at distance 1, 2, 4, ... exchange all that they have: log2 n hops"),
    one<bruck_all_gather, textbook::exchange>(
        Collective::all_gather, "bruck", Reach::links, textbook::logarithmic,
        "Runs of blocks from distance 1, 2, 4, ...: log2 n hops, least bytes for any n"),
    many<direct_all_gather, textbook::exchange>(Collective::all_gather, "direct", Reach::links,
                                                textbook::one_hop,
                                                "Every block straight to every rank: 1 hop"),
    many<direct_window_all_gather, textbook::read_others>(
        Collective::all_gather, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone reads the others' blocks where they are"),
    nested<kHierarchical, kRings>(Collective::all_gather, Reach::links,
                                  "Across groups, then inside, by rings"),
    nested<kHierarchicalWindow, kWindows>(Collective::all_gather, Reach::windows,
                                          "Across groups, then inside, through windows"),
    many<ring_reduce_scatter, textbook::exchange>(Collective::reduce_scatter, "ring", Reach::links,
                                                  textbook::around,
                                                  "Sums travel around a ring: n-1 hops"),
    one<recursive_halving_reduce_scatter, textbook::recursive_halving_reduce_scatter>(
        Collective::reduce_scatter, "recursive_halving", Reach::links, textbook::halving,
        "Halves between partners, the farthest first: log2 n hops"),
    one<bruck_reduce_scatter, textbook::exchange>(
        Collective::reduce_scatter, "bruck", Reach::links, textbook::logarithmic,
        "Bruck's all-gather in reverse: log2 n hops, least bytes for any n"),
    many<direct_reduce_scatter, textbook::exchange>(Collective::reduce_scatter, "direct",
                                                    Reach::links, textbook::one_hop,
                                                    "Every block straight to its owner: 1 hop"),
    many<direct_window_reduce_scatter, textbook::read_others>(
        Collective::reduce_scatter, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone sums up its block where the inputs are"),
    nested<kHierarchical, kRings>(Collective::reduce_scatter, Reach::links,
                                  "Inside of groups, then across, by rings"),
    nested<kHierarchicalWindow, kWindows>(Collective::reduce_scatter, Reach::windows,
                                          "Inside of groups, then across, through windows"),
    one<tree_broadcast, textbook::tree_broadcast>(
        Collective::broadcast, "tree", Reach::links, textbook::up_or_down,
        "Down two binary trees, half of the data each: log2 n hops"),
    many<chain_broadcast, textbook::chain_broadcast>(
        Collective::broadcast, "chain", Reach::links, textbook::around,
        "From rank to rank, tile after tile: for long messages"),
    many<direct_broadcast, textbook::from_root>(Collective::broadcast, "direct", Reach::links,
                                                textbook::one_hop,
                                                "The root sends to everyone: 1 hop"),
    many<direct_window_broadcast, textbook::read_root>(
        Collective::broadcast, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone reads the root's input where it is"),
    many<split_window_broadcast, textbook::split_broadcast>(
        Collective::broadcast, "split_window", Reach::windows, textbook::two_hops,
        "Everyone copies a chunk of the root's input to all outputs, the root too"),
    nested<kHierarchical, kRings>(Collective::broadcast, Reach::links,
                                  "To a leader per group, then inside, by chains"),
    nested<kHierarchicalTree, kLogarithmic>(Collective::broadcast, Reach::links,
                                            "To a leader per group, then inside, in O(log n) hops"),
    nested<kHierarchicalWindow, kWindows>(Collective::broadcast, Reach::windows,
                                          "To a leader per group, then inside, through windows"),
    one<tree_reduce, textbook::tree_reduce>(
        Collective::reduce, "tree", Reach::links, textbook::up_or_down,
        "Up two binary trees, half of the data each: log2 n hops"),
    many<chain_reduce, textbook::chain_reduce>(
        Collective::reduce, "chain", Reach::links, textbook::around,
        "From rank to rank, tile after tile: for long messages"),
    many<direct_reduce, textbook::to_root>(Collective::reduce, "direct", Reach::links,
                                           textbook::one_hop,
                                           "Everyone sends to the root, which sums up: 1 hop"),
    many<direct_window_reduce, textbook::root_reads>(Collective::reduce, "direct_window",
                                                     Reach::windows, textbook::two_hops,
                                                     "The root sums up all inputs where they are"),
    many<split_window_reduce, textbook::split_reduce>(
        Collective::reduce, "split_window", Reach::windows, textbook::two_hops,
        "Everyone sums up a chunk of all inputs into the root's output"),
    nested<kHierarchical, kRings>(Collective::reduce, Reach::links,
                                  "Inside of groups, then from the leaders, by chains"),
    nested<kHierarchicalTree, kLogarithmic>(
        Collective::reduce, Reach::links,
        "Inside of groups, then from the leaders, in O(log n) hops"),
    nested<kHierarchicalWindow, kWindows>(
        Collective::reduce, Reach::windows,
        "Inside of groups, then from the leaders, through windows"),
    many<binomial_gather, textbook::binomial_gather>(
        Collective::gather, "binomial", Reach::links, textbook::binomial,
        "Up a binomial tree: the root has log2 n links"),
    many<direct_gather, textbook::to_root>(Collective::gather, "direct", Reach::links,
                                           textbook::one_hop, "Everyone sends to the root: 1 hop"),
    many<direct_window_gather, textbook::write_root>(
        Collective::gather, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone writes its block into the root's output"),
    many<binomial_scatter, textbook::binomial_scatter>(
        Collective::scatter, "binomial", Reach::links, textbook::binomial,
        "Down a binomial tree: the root has log2 n links"),
    many<direct_scatter, textbook::from_root>(Collective::scatter, "direct", Reach::links,
                                              textbook::one_hop,
                                              "The root sends to everyone: 1 hop"),
    many<direct_window_scatter, textbook::read_root>(Collective::scatter, "direct_window",
                                                     Reach::windows, textbook::two_hops,
                                                     "Everyone reads its block where it is"),
    many<pairwise_all_to_all, textbook::exchange>(
        Collective::all_to_all, "pairwise", Reach::links, textbook::around,
        "To the rank i after, from the rank i before: every pair in its turn"),
    many<direct_all_to_all, textbook::exchange>(Collective::all_to_all, "direct", Reach::links,
                                                textbook::one_hop, "All blocks at once: 1 hop"),
    many<direct_window_all_to_all, textbook::read_others>(
        Collective::all_to_all, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone reads its blocks where they are"),
    one<ring_all_gather_v, textbook::exchange>(Collective::all_gather_v, "ring", Reach::links,
                                               textbook::around,
                                               "Blocks travel around a ring: n-1 hops"),
    one<direct_all_gather_v, textbook::exchange>(Collective::all_gather_v, "direct", Reach::links,
                                                 textbook::one_hop,
                                                 "Every block straight to every rank: 1 hop"),
    one<direct_window_all_gather_v, textbook::read_others>(
        Collective::all_gather_v, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone reads the others' blocks where they are"),
    one<ring_reduce_scatter_v, textbook::exchange>(Collective::reduce_scatter_v, "ring",
                                                   Reach::links, textbook::around,
                                                   "Sums travel around a ring: n-1 hops"),
    one<direct_reduce_scatter_v, textbook::exchange>(Collective::reduce_scatter_v, "direct",
                                                     Reach::links, textbook::one_hop,
                                                     "Every block straight to its owner: 1 hop"),
    one<direct_window_reduce_scatter_v, textbook::read_others>(
        Collective::reduce_scatter_v, "direct_window", Reach::windows, textbook::two_hops,
        "Everyone sums up its block where the inputs are"),
    one<pairwise_all_to_all_v, textbook::exchange>(Collective::all_to_all_v, "pairwise",
                                                   Reach::links, textbook::one_hop,
                                                   "Every pair and direction in a lane of its own"),
    one<neighbours_send_recv, textbook::neighbours>(
        Collective::send_recv, "neighbours", Reach::links, textbook::one_hop,
        "Everyone sends to the next rank and receives from the previous one"),
    one<dissemination_barrier, textbook::nothing>(
        Collective::barrier, "dissemination", Reach::links, textbook::logarithmic,
        "Signals to the ranks 1, 2, 4, ... after: log2 n hops"),
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective c, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == c && a.name == name) return &a;
  }
  return nullptr;
}

Plan generate_plan(const Algorithm& algorithm, const PlanRequest& request) {
  PlanRequest r = request;
  r.collective = algorithm.collective;
  Plan plan;
  plan.ranks.reserve(r.ranks > 0 ? static_cast<std::size_t>(r.ranks) : 0);
  int rank = 0;
  do {  // rank 0 also where there is none: the generator refuses
    plan.ranks.push_back(algorithm.generate(r, rank));
  } while (++rank < r.ranks);
  plan.header = plan.ranks.front().header;
  return plan;
}

}  // namespace tutti

// The table of algorithms.
#include "collectives/algorithms.h"

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/hierarchical.h"
#include "collectives/algorithms/textbook.h"

namespace tutti {
namespace {

using namespace algorithm;  // NOLINT: the table is about nothing else

constexpr Family kRings = {{ring_all_reduce, textbook::exchange_twice, textbook::around_twice},
                           {ring_all_gather, textbook::exchange, textbook::around},
                           {ring_reduce_scatter, textbook::exchange, textbook::around},
                           {chain_broadcast, textbook::chain_broadcast, textbook::around},
                           {chain_reduce, textbook::chain_reduce, textbook::around}};
constexpr Family kLogarithmic = {
    {tree_all_reduce, textbook::tree_all_reduce, textbook::up_and_down},
    {recursive_doubling_all_gather, textbook::recursive_doubling_all_gather, textbook::doubling},
    {bruck_reduce_scatter, textbook::exchange, textbook::logarithmic},
    {tree_broadcast, textbook::tree_broadcast, textbook::up_or_down},
    {tree_reduce, textbook::tree_reduce, textbook::up_or_down}};
/// Without a reduce_scatter, so leaders alone work across groups.
constexpr Family kLeaders = {
    {recursive_doubling_all_reduce, textbook::recursive_doubling_all_reduce, textbook::logarithmic},
    {},
    {},
    {tree_broadcast, textbook::tree_broadcast, textbook::up_or_down},
    {tree_reduce, textbook::tree_reduce, textbook::up_or_down}};
constexpr Family kWindows = {
    {two_shot_window_all_reduce, textbook::exchange, textbook::two_hops},
    {direct_window_all_gather, textbook::read_others, textbook::two_hops},
    {direct_window_reduce_scatter, textbook::read_others, textbook::two_hops},
    {direct_window_broadcast, textbook::read_root, textbook::two_hops},
    {direct_window_reduce, textbook::root_reads, textbook::two_hops}};

constexpr char kHierarchical[] = "hierarchical";
constexpr char kHierarchicalTree[] = "hierarchical_tree";
constexpr char kHierarchicalWindow[] = "hierarchical_window";
constexpr char kHierarchicalLeaders[] = "hierarchical_leaders";

template <const char* kName, const Family& kInner, const Family& kOuter>
RankPlan composed(const PlanRequest& request, int rank) {
  return compose_hierarchical(request, kName, kInner, kOuter, rank);
}
template <const Family& kInner, const Family& kOuter>
Traffic composed_traffic(const PlanRequest& request, int rank) {
  return hierarchical_traffic(request, kInner, kOuter, rank);
}

template <const Family& kInner, const Family& kOuter>
Hops composed_hops(const PlanRequest& request) {
  return hierarchical_hops(request, kInner, kOuter);
}
template <auto kHops>
Hops flat(const PlanRequest& request) {
  return {.across = kHops(request.ranks)};
}

template <auto kAcross>
Hops in_groups_hops(const PlanRequest& request) {
  return textbook::in_groups(request, kAcross);
}

/// What a plan's steps reach: links alone, or other ranks' memory with links for signals alone.
enum class Over : bool { links, windows };

/// An algorithm that has one slice, or...
template <auto kGenerate, auto kTextbook, auto kHops>
constexpr Algorithm one(Collective c, std::string_view name, Over over, std::string_view summary) {
  return {.collective = c,
          .name = name,
          .summary = summary,
          .windows = over == Over::windows,
          .generate = kGenerate,
          .textbook = kTextbook,
          .hops = flat<kHops>};
}
/// ... one for each lane that is asked for.
template <auto kGenerate, auto kTextbook, auto kHops>
constexpr Algorithm many(Collective c, std::string_view name, Over over, std::string_view summary) {
  return {.collective = c,
          .name = name,
          .summary = summary,
          .windows = over == Over::windows,
          .lanes = true,
          .generate = sliced<kGenerate>,
          .textbook = sliced_traffic<kTextbook>,
          .hops = flat<kHops>};
}
/// One that addresses other ranks' tmp alone.
template <auto kGenerate, auto kTextbook, auto kHops>
constexpr Algorithm shared(Collective c, std::string_view summary) {
  Algorithm a = one<kGenerate, kTextbook, kHops>(c, "shared", Over::windows, summary);
  a.tmp_alone = true;
  return a;
}
/// A ring or a chain.
constexpr Algorithm in_order(Algorithm a) {
  a.follows_order = true;
  return a;
}
/// One step sums all ranks' inputs, in the order of the ranks; or, where the request says in_order,
/// groups' sums.
constexpr Algorithm invariant(Algorithm a) {
  a.invariant = true;
  return a;
}
constexpr Algorithm compressed(Algorithm a) {
  a.compressed = true;
  return a;
}
template <const char* kName, const Family& kFamily>
constexpr Algorithm nested(Collective c, Over over, std::string_view summary) {
  using Groups = Algorithm::Groups;
  return {.collective = c,
          .name = kName,
          .summary = summary,
          .windows = over == Over::windows,
          .groups = needs_equal_groups(c) ? Groups::equal : Groups::any,
          .generate = composed<kName, kFamily, kFamily>,
          .textbook = composed_traffic<kFamily, kFamily>,
          .hops = composed_hops<kFamily, kFamily>};
}
/// Windows inside of groups, links across.
template <auto kGenerate, auto kTextbook, auto kAcross>
constexpr Algorithm in_groups(Collective c, std::string_view name, std::string_view summary) {
  return {.collective = c,
          .name = name,
          .summary = summary,
          .windows = true,
          .groups = Algorithm::Groups::any,
          .generate = kGenerate,
          .textbook = kTextbook,
          .hops = in_groups_hops<kAcross>};
}

constexpr Algorithm kAlgorithms[] = {
    in_order(many<ring_all_reduce, textbook::exchange_twice, textbook::around_twice>(
        Collective::all_reduce, "ring", Over::links,
        "Sums travel around a ring, then the results: least bytes, 2(n-1) hops")),
    one<tree_all_reduce, textbook::tree_all_reduce, textbook::up_and_down>(
        Collective::all_reduce, "tree", Over::links,
        "Up and down two binary trees at once: near least bytes, 4 log2 n hops"),
    invariant(many<recursive_doubling_all_reduce, textbook::recursive_doubling_all_reduce,
                   textbook::logarithmic>(
        Collective::all_reduce, "recursive_doubling", Over::links,
        "Whole vectors between groups of 1, 2, 4, ... ranks: log2 n hops")),
    one<recursive_halving_all_reduce, textbook::recursive_halving_all_reduce,
        textbook::halving_and_doubling>(
        Collective::all_reduce, "recursive_halving", Over::links,
        "Halves between partners, then back: least bytes, 2 log2 n hops"),
    invariant(many<one_shot_all_reduce, textbook::exchange, textbook::one_hop>(
        Collective::all_reduce, "one_shot", Over::links,
        "Everyone sends everything to everyone: 1 hop")),
    invariant(many<two_shot_all_reduce, textbook::exchange_twice, textbook::two_hops>(
        Collective::all_reduce, "two_shot", Over::links,
        "Everyone sums up a chunk and sends it to everyone: 2 hops, least bytes")),
    invariant(many<one_shot_window_all_reduce, textbook::read_others, textbook::two_hops>(
        Collective::all_reduce, "one_shot_window", Over::windows,
        "Everyone reads all inputs where they are")),
    invariant(many<two_shot_window_all_reduce, textbook::exchange, textbook::two_hops>(
        Collective::all_reduce, "two_shot_window", Over::windows,
        "Everyone sums up a chunk where it is and writes it to all: no copies")),
    invariant(shared<shared_all_reduce, textbook::read_twice, textbook::three_hops>(
        Collective::all_reduce,
        "As two_shot, through memory that all ranks of a host share: for many ranks there")),
    nested<kHierarchical, kRings>(
        Collective::all_reduce, Over::links,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, by rings"),
    nested<kHierarchicalTree, kLogarithmic>(
        Collective::all_reduce, Over::links,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, in O(log n) hops"),
    nested<kHierarchicalLeaders, kLeaders>(
        Collective::all_reduce, Over::links,
        "Reduce to a leader of each group, all_reduce among leaders, broadcast inside of groups"),
    nested<kHierarchicalWindow, kWindows>(
        Collective::all_reduce, Over::windows,
        "reduce_scatter inside of groups, all_reduce across, all_gather inside, through windows"),
    invariant(
        in_groups<hierarchical_direct_all_reduce, textbook::groups_all_reduce, textbook::two_hops>(
            Collective::all_reduce, "hierarchical_direct",
            "Sums up windows of its group, then two_shot across: for several hosts")),
    invariant(in_groups<hierarchical_pipelined_all_reduce,
                        textbook::in_three<textbook::groups_all_reduce>, textbook::two_hops>(
        Collective::all_reduce, "hierarchical_pipelined",
        "As hierarchical_direct, with three messages under way: for long ones")),
    compressed(one<two_shot_compressed_all_reduce, textbook::exchange_twice, textbook::two_hops>(
        Collective::all_reduce, "two_shot_compressed", Over::links,
        "As two_shot, with 8 bits for an element on links: for calls that ask for it")),
    in_order(many<ring_all_gather, textbook::exchange, textbook::around>(
        Collective::all_gather, "ring", Over::links, "Blocks travel around a ring: n-1 hops")),
    one<recursive_doubling_all_gather, textbook::recursive_doubling_all_gather, textbook::doubling>(
        Collective::all_gather, "recursive_doubling", Over::links,
        "Partners at distance 1, 2, 4, ... exchange all that they have: log2 n hops"),
    one<bruck_all_gather, textbook::exchange, textbook::logarithmic>(
        Collective::all_gather, "bruck", Over::links,
        "Runs of blocks from distance 1, 2, 4, ...: log2 n hops, least bytes for any n"),
    many<direct_all_gather, textbook::exchange, textbook::one_hop>(
        Collective::all_gather, "direct", Over::links, "Every block straight to every rank: 1 hop"),
    many<direct_window_all_gather, textbook::read_others, textbook::two_hops>(
        Collective::all_gather, "direct_window", Over::windows,
        "Everyone reads the others' blocks where they are"),
    shared<shared_all_gather, textbook::read_others, textbook::two_hops>(
        Collective::all_gather,
        "Everyone writes its block once, into memory that all ranks of a host share"),
    nested<kHierarchical, kRings>(Collective::all_gather, Over::links,
                                  "Across groups, then inside, by rings"),
    nested<kHierarchicalWindow, kWindows>(Collective::all_gather, Over::windows,
                                          "Across groups, then inside, through windows"),
    in_groups<hierarchical_direct_all_gather, textbook::groups_all_gather, textbook::one_hop>(
        Collective::all_gather, "hierarchical_direct",
        "Straight to a rank of each group, which writes to its windows: for several hosts"),
    in_groups<hierarchical_pipelined_all_gather, textbook::in_three<textbook::groups_all_gather>,
              textbook::one_hop>(
        Collective::all_gather, "hierarchical_pipelined",
        "As hierarchical_direct, with three messages under way: for long ones"),
    in_order(many<ring_reduce_scatter, textbook::exchange, textbook::around>(
        Collective::reduce_scatter, "ring", Over::links, "Sums travel around a ring: n-1 hops")),
    one<recursive_halving_reduce_scatter, textbook::recursive_halving_reduce_scatter,
        textbook::halving>(Collective::reduce_scatter, "recursive_halving", Over::links,
                           "Halves between partners, the farthest first: log2 n hops"),
    one<bruck_reduce_scatter, textbook::exchange, textbook::logarithmic>(
        Collective::reduce_scatter, "bruck", Over::links,
        "Bruck's all-gather in reverse: log2 n hops, least bytes for any n"),
    invariant(many<direct_reduce_scatter, textbook::exchange, textbook::one_hop>(
        Collective::reduce_scatter, "direct", Over::links,
        "Every block straight to its owner: 1 hop")),
    invariant(many<direct_window_reduce_scatter, textbook::read_others, textbook::two_hops>(
        Collective::reduce_scatter, "direct_window", Over::windows,
        "Everyone sums up its block where the inputs are")),
    nested<kHierarchical, kRings>(Collective::reduce_scatter, Over::links,
                                  "Inside of groups, then across, by rings"),
    nested<kHierarchicalWindow, kWindows>(Collective::reduce_scatter, Over::windows,
                                          "Inside of groups, then across, through windows"),
    invariant(in_groups<hierarchical_direct_reduce_scatter, textbook::groups_reduce_scatter,
                        textbook::one_hop>(
        Collective::reduce_scatter, "hierarchical_direct",
        "Sums of each group's windows straight to the owner: for several hosts")),
    invariant(in_groups<hierarchical_pipelined_reduce_scatter,
                        textbook::in_three<textbook::groups_reduce_scatter>, textbook::one_hop>(
        Collective::reduce_scatter, "hierarchical_pipelined",
        "As hierarchical_direct, with three messages under way: for long ones")),
    compressed(one<direct_compressed_reduce_scatter, textbook::exchange, textbook::one_hop>(
        Collective::reduce_scatter, "direct_compressed", Over::links,
        "As direct, with 8 bits for an element on links: for calls that ask for it")),
    one<tree_broadcast, textbook::tree_broadcast, textbook::up_or_down>(
        Collective::broadcast, "tree", Over::links,
        "Down two binary trees, half of the data each: log2 n hops"),
    in_order(many<chain_broadcast, textbook::chain_broadcast, textbook::around>(
        Collective::broadcast, "chain", Over::links,
        "From rank to rank, tile after tile: for long messages")),
    many<direct_broadcast, textbook::from_root, textbook::one_hop>(
        Collective::broadcast, "direct", Over::links, "The root sends to everyone: 1 hop"),
    many<direct_window_broadcast, textbook::read_root, textbook::two_hops>(
        Collective::broadcast, "direct_window", Over::windows,
        "Everyone reads the root's input where it is"),
    many<split_window_broadcast, textbook::split_broadcast, textbook::two_hops>(
        Collective::broadcast, "split_window", Over::windows,
        "Everyone copies a chunk of the root's input to all outputs, the root too"),
    shared<shared_broadcast, textbook::read_pieces_of_root, textbook::two_hops>(
        Collective::broadcast, "The root writes once, into memory that all ranks of a host share"),
    nested<kHierarchical, kRings>(Collective::broadcast, Over::links,
                                  "To a leader per group, then inside, by chains"),
    nested<kHierarchicalTree, kLogarithmic>(Collective::broadcast, Over::links,
                                            "To a leader per group, then inside, in O(log n) hops"),
    nested<kHierarchicalWindow, kWindows>(Collective::broadcast, Over::windows,
                                          "To a leader per group, then inside, through windows"),
    in_groups<hierarchical_chain_broadcast, textbook::groups_chain_broadcast, textbook::around>(
        Collective::broadcast, "hierarchical_chain",
        "From group to group, and to all windows there: for several hosts"),
    in_groups<hierarchical_binomial_broadcast, textbook::groups_binomial_broadcast,
              textbook::binomial>(
        Collective::broadcast, "hierarchical_binomial",
        "Down a binomial tree of groups, and to all windows there: for several hosts"),
    one<tree_reduce, textbook::tree_reduce, textbook::up_or_down>(
        Collective::reduce, "tree", Over::links,
        "Up two binary trees, half of the data each: log2 n hops"),
    in_order(many<chain_reduce, textbook::chain_reduce, textbook::around>(
        Collective::reduce, "chain", Over::links,
        "From rank to rank, tile after tile: for long messages")),
    invariant(many<direct_reduce, textbook::to_root, textbook::one_hop>(
        Collective::reduce, "direct", Over::links,
        "Everyone sends to the root, which sums up: 1 hop")),
    invariant(many<two_shot_reduce, textbook::two_shot_reduce, textbook::two_hops>(
        Collective::reduce, "two_shot", Over::links,
        "Everyone sums up a chunk and sends it to the root: 2 hops")),
    invariant(many<direct_window_reduce, textbook::root_reads, textbook::two_hops>(
        Collective::reduce, "direct_window", Over::windows,
        "The root sums up all inputs where they are")),
    invariant(many<split_window_reduce, textbook::split_reduce, textbook::two_hops>(
        Collective::reduce, "split_window", Over::windows,
        "Everyone sums up a chunk of all inputs into the root's output")),
    nested<kHierarchical, kRings>(Collective::reduce, Over::links,
                                  "Inside of groups, then from the leaders, by chains"),
    nested<kHierarchicalTree, kLogarithmic>(
        Collective::reduce, Over::links,
        "Inside of groups, then from the leaders, in O(log n) hops"),
    nested<kHierarchicalWindow, kWindows>(
        Collective::reduce, Over::windows,
        "Inside of groups, then from the leaders, through windows"),
    invariant(
        in_groups<hierarchical_direct_reduce, textbook::groups_direct_reduce, textbook::one_hop>(
            Collective::reduce, "hierarchical_direct",
            "Sums of each group's windows straight to the root's group: for several hosts")),
    in_groups<hierarchical_chain_reduce, textbook::groups_chain_reduce, textbook::around>(
        Collective::reduce, "hierarchical_chain",
        "Sums of a group's windows, from group to group: for several hosts"),
    in_groups<hierarchical_binomial_reduce, textbook::groups_binomial_reduce, textbook::binomial>(
        Collective::reduce, "hierarchical_binomial",
        "Sums of a group's windows, up a binomial tree of groups: for several hosts"),
    many<binomial_gather, textbook::binomial_gather, textbook::binomial>(
        Collective::gather, "binomial", Over::links,
        "Up a binomial tree: the root has log2 n links"),
    many<direct_gather, textbook::to_root, textbook::one_hop>(
        Collective::gather, "direct", Over::links, "Everyone sends to the root: 1 hop"),
    many<direct_window_gather, textbook::write_root, textbook::two_hops>(
        Collective::gather, "direct_window", Over::windows,
        "Everyone writes its block into the root's output"),
    many<binomial_scatter, textbook::binomial_scatter, textbook::binomial>(
        Collective::scatter, "binomial", Over::links,
        "Down a binomial tree: the root has log2 n links"),
    many<direct_scatter, textbook::from_root, textbook::one_hop>(
        Collective::scatter, "direct", Over::links, "The root sends to everyone: 1 hop"),
    many<direct_window_scatter, textbook::read_root, textbook::two_hops>(
        Collective::scatter, "direct_window", Over::windows,
        "Everyone reads its block where it is"),
    many<pairwise_all_to_all, textbook::exchange, textbook::around>(
        Collective::all_to_all, "pairwise", Over::links,
        "To the rank i after, from the rank i before: every pair in its turn"),
    many<direct_all_to_all, textbook::exchange, textbook::one_hop>(
        Collective::all_to_all, "direct", Over::links, "All blocks at once: 1 hop"),
    many<direct_window_all_to_all, textbook::read_others, textbook::two_hops>(
        Collective::all_to_all, "direct_window", Over::windows,
        "Everyone reads its blocks where they are"),
    in_order(one<ring_all_gather_v, textbook::exchange, textbook::around>(
        Collective::all_gather_v, "ring", Over::links, "Blocks travel around a ring: n-1 hops")),
    one<direct_all_gather_v, textbook::exchange, textbook::one_hop>(
        Collective::all_gather_v, "direct", Over::links,
        "Every block straight to every rank: 1 hop"),
    one<direct_window_all_gather_v, textbook::read_others, textbook::two_hops>(
        Collective::all_gather_v, "direct_window", Over::windows,
        "Everyone reads the others' blocks where they are"),
    in_order(one<ring_reduce_scatter_v, textbook::exchange, textbook::around>(
        Collective::reduce_scatter_v, "ring", Over::links, "Sums travel around a ring: n-1 hops")),
    invariant(one<direct_reduce_scatter_v, textbook::exchange, textbook::one_hop>(
        Collective::reduce_scatter_v, "direct", Over::links,
        "Every block straight to its owner: 1 hop")),
    invariant(one<direct_window_reduce_scatter_v, textbook::read_others, textbook::two_hops>(
        Collective::reduce_scatter_v, "direct_window", Over::windows,
        "Everyone sums up its block where the inputs are")),
    invariant(in_groups<hierarchical_direct_reduce_scatter_v, textbook::groups_reduce_scatter,
                        textbook::one_hop>(
        Collective::reduce_scatter_v, "hierarchical_direct",
        "Sums of each group's windows straight to the owner: for several hosts")),
    one<pairwise_all_to_all_v, textbook::exchange, textbook::one_hop>(
        Collective::all_to_all_v, "pairwise", Over::links,
        "Every pair and direction in a lane of its own"),
    one<direct_window_all_to_all_v, textbook::read_others, textbook::two_hops>(
        Collective::all_to_all_v, "direct_window", Over::windows,
        "Everyone reads its blocks where they are; short ones come as by pairwise"),
    one<neighbours_send_recv, textbook::neighbours, textbook::one_hop>(
        Collective::send_recv, "neighbours", Over::links,
        "Everyone sends to the next rank and receives from the previous one"),
    one<dissemination_barrier, textbook::nothing, textbook::logarithmic>(
        Collective::barrier, "dissemination", Over::links,
        "Signals to the ranks 1, 2, 4, ... after: log2 n hops"),
    {.collective = Collective::barrier,
     .name = kHierarchical,
     .summary = "Up a tree in each group, signals among their leaders, down the trees",
     .groups = Algorithm::Groups::any,
     .generate = hierarchical_barrier,
     .textbook = textbook::nothing,
     .hops = textbook::hierarchical_barrier},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective c, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == c && a.name == name) return &a;
  }
  return nullptr;
}

PlanParts plan_parts(const Algorithm& algorithm, const PlanRequest& request) {
  PlanRequest r = request;
  r.collective = algorithm.collective;
  // Rank 0 also where there is none: the generator refuses.
  return {algorithm.generate(r, 0).header,
          [generate = algorithm.generate, r](int rank) { return generate(r, rank); }};
}

Plan generate_plan(const Algorithm& algorithm, const PlanRequest& request) {
  const PlanParts parts = plan_parts(algorithm, request);
  Plan plan;
  plan.header = parts.header;
  plan.ranks.reserve(static_cast<std::size_t>(parts.header.ranks));
  for (int rank = 0; rank < parts.header.ranks; ++rank) plan.ranks.push_back(parts.part(rank));
  return plan;
}

}  // namespace tutti

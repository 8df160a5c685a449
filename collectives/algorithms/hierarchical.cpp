// Hierarchical: groups of neighbouring ranks (a node, say) finish what they can among themselves,
// so that less crosses the slower links between groups. Any algorithm can serve inside and any
// across; stages are embedded plans (embed.h) in one another's results.
//
//     all_reduce      reduce_scatter inside, all_reduce across, all_gather inside; so each rank of
//                     a group carries its share of the traffic between groups. With groups of
//                     unequal size: reduce to a leader, all_reduce among leaders, broadcast
//     all_gather      across, then inside for every group's blocks
//     reduce_scatter  inside for every group's blocks, then across
//     broadcast       from the root across to one leader each, then inside
//     reduce          inside to the leaders, then across to the root
//
// "Across" is among the ranks with the same index in their group, where all groups are equal. The
// first is known as the 2D or three-phase all-reduce: M. Cho et al., "BlueConnect: Decomposing
// all-reduce for deep learning on heterogeneous network hierarchy", SysML 2019.
#include "collectives/algorithms/hierarchical.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/embed.h"
#include "core/error.h"

namespace tutti::algorithm {
namespace {

struct Stage {
  const Part* part;
  PlanRequest request;
  Placement placement;
};

/// One rank's way through the stages.
class Composition {
 public:
  Composition(const PlanRequest& request, const Family& inner, const Family& outer, int rank);

  RankPlan generate(std::string_view name) const;
  Traffic textbook() const;

 private:
  void all_reduce();
  void all_reduce_by_leaders();
  void all_gather();
  void reduce_scatter();
  void broadcast();
  void reduce();

  /// Makes the sizes fit a part that some rank has; before the first stage.
  void expect(Collective c, const Part& part, int ranks);
  void expect_inside(Collective c, const Part& part);
  /// Appends a stage among placement.ranks, which begins where the last one's results lie.
  void stage(Collective c, const Part& part, int root, Placement placement);

  bool groups_are_equal() const { return n_ % g_ == 0; }
  void need_equal_groups() const;
  int groups() const { return (n_ + g_ - 1) / g_; }
  int size_of(int group) const { return std::min(g_, n_ - group * g_); }
  int leader(int group) const { return group == root_ / g_ ? root_ : group * g_; }
  /// A group of one has nothing to do inside, unless it is all there is.
  bool works_inside() const { return size_of(k_) > 1 || groups() == 1; }
  std::vector<int> my_group() const;
  std::vector<int> same_index() const;
  std::vector<int> leaders() const;

  // Places that are the same on all ranks.
  using Places = std::function<Region(int)>;
  static Places all(Region region) {
    return [region](int) { return region; };
  }
  /// Rank i's is block begin + i * step of `space`.
  Places block_by_rank(Space space, int begin, int step) const {
    return [=, s = pieces_](int i) { return Region{space, u32(begin + i * step) * s, s}; };
  }
  Region whole(Space space) const { return {space, 0, pieces_}; }

  const PlanRequest& request_;
  const Family& inner_;
  const Family& outer_;
  int rank_;
  int n_, root_;
  int g_;      // ranks per group; the last group may have fewer
  int k_, j_;  // this rank's group, and its index there
  // The stages' blocks have pieces_ chunks, a multiple of each part's pieces.
  std::uint32_t pieces_ = 1;
  std::uint32_t blocks_ = 1;  // of the stages in one of the whole plan
  std::uint32_t slots_ = 1;
  std::uint32_t lanes_ = 1;
  std::vector<PlanHeader> expected_;
  std::uint32_t kept_ = 0;  // chunks of tmp in which a stage leaves its results
  std::vector<Stage> stages_;
};

Composition::Composition(const PlanRequest& request, const Family& inner, const Family& outer,
                         int rank)
    : request_(request),
      inner_(inner),
      outer_(outer),
      rank_(rank),
      n_(request.ranks),
      root_(is_rooted(request.collective) ? request.root : 0),
      g_(request.group) {
  make_header(request.collective, "hierarchical", request, rank, {});  // checks the request
  if (g_ < 0 || g_ > n_) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("groups of {} ranks, of {} in all; ask for 1 to {}, or 0 to leave it open", g_,
                    n_, n_));
  }
  if (g_ == 0) {  // of the divisors around the square root, the one below is the nearer
    for (int d = 1; d * d <= n_; ++d) {
      if (n_ % d == 0) g_ = d;
    }
  }
  k_ = rank / g_;
  j_ = rank % g_;
  switch (request.collective) {
    case Collective::all_reduce:
      groups_are_equal() ? all_reduce() : all_reduce_by_leaders();
      break;
    case Collective::all_gather:
      all_gather();
      break;
    case Collective::reduce_scatter:
      reduce_scatter();
      break;
    case Collective::broadcast:
      broadcast();
      break;
    case Collective::reduce:
      reduce();
      break;
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} has no hierarchical form", name(request.collective)));
  }
}

void Composition::need_equal_groups() const {
  if (groups_are_equal()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("hierarchical {} needs groups of equal size, and {} does not divide {}; "
                          "ask for a divisor, or 0 to leave it open",
                          name(request_.collective), g_, n_));
}

std::vector<int> Composition::my_group() const {
  std::vector<int> ranks(u32(size_of(k_)));
  std::iota(ranks.begin(), ranks.end(), k_ * g_);
  return ranks;
}

std::vector<int> Composition::same_index() const {
  std::vector<int> ranks;
  for (int r = j_; r < n_; r += g_) ranks.push_back(r);
  return ranks;
}

std::vector<int> Composition::leaders() const {
  std::vector<int> ranks;
  for (int k = 0; k < groups(); ++k) ranks.push_back(leader(k));
  return ranks;
}

void Composition::expect(Collective c, const Part& part, int ranks) {
  expected_.push_back(part.generate({c, ranks}, 0).header);
  const PlanHeader& h = expected_.back();
  pieces_ = std::lcm(pieces_, h.pieces);
  slots_ = std::max(slots_, h.slots);
  lanes_ = std::max(lanes_, h.lanes);
}

void Composition::expect_inside(Collective c, const Part& part) {
  expect(c, part, g_);
  if (!groups_are_equal()) expect(c, part, size_of(groups() - 1));
}

void Composition::stage(Collective c, const Part& part, int root, Placement placement) {
  const int ranks = static_cast<int>(placement.ranks.size());
  placement.pieces = pieces_;
  placement.tmp = kept_;
  stages_.push_back({&part, {c, ranks, root}, std::move(placement)});
}

void Composition::all_reduce() {
  expect(Collective::reduce_scatter, inner_.reduce_scatter, g_);
  expect(Collective::all_gather, inner_.all_gather, g_);
  expect(Collective::all_reduce, outer_.all_reduce, groups());
  blocks_ = u32(g_);
  const Region mine{Space::out, u32(j_) * pieces_, pieces_};
  const Places by_index = block_by_rank(Space::out, 0, 1);
  if (works_inside()) {
    stage(Collective::reduce_scatter, inner_.reduce_scatter, 0,
          {.ranks = my_group(),
           .in = all(whole(Space::in)),
           .out = by_index,
           .in_shape = whole(Space::in),
           .out_shape = mine,
           .completes = groups() == 1});
  }
  if (groups() > 1) {
    stage(Collective::all_reduce, outer_.all_reduce, 0,
          {.ranks = same_index(),
           .in = all(works_inside() ? mine : whole(Space::in)),
           .out = all(mine),
           .in_shape = mine,
           .out_shape = mine,
           .completes = true});
  }
  if (works_inside()) {
    stage(Collective::all_gather, inner_.all_gather, 0,
          {.ranks = my_group(),
           .in = by_index,
           .out = all(whole(Space::out)),
           .in_shape = mine,
           .out_shape = whole(Space::out)});
  }
}

void Composition::all_reduce_by_leaders() {
  expect_inside(Collective::reduce, inner_.reduce);
  expect_inside(Collective::broadcast, inner_.broadcast);
  expect(Collective::all_reduce, outer_.all_reduce, groups());
  const Region out = whole(Space::out);
  const Places in_out = all(out);
  if (works_inside()) {
    stage(Collective::reduce, inner_.reduce, 0,
          {.ranks = my_group(),
           .in = all(whole(Space::in)),
           .out = in_out,
           .in_shape = whole(Space::in),
           .out_shape = out});
  }
  if (j_ == 0) {
    stage(Collective::all_reduce, outer_.all_reduce, 0,
          {.ranks = leaders(),
           .in = [this](int k) { return whole(size_of(k) > 1 ? Space::out : Space::in); },
           .out = in_out,
           .in_shape = out,
           .out_shape = out,
           .completes = true});
  }
  if (works_inside()) {
    stage(Collective::broadcast, inner_.broadcast, 0,
          {.ranks = my_group(), .in = in_out, .out = in_out, .in_shape = out, .out_shape = out});
  }
}

void Composition::all_gather() {
  need_equal_groups();
  expect(Collective::all_gather, inner_.all_gather, g_);
  expect(Collective::all_gather, outer_.all_gather, groups());
  if (groups() > 1) {
    const Region across{Space::out, u32(j_) * pieces_, u32(g_) * pieces_};
    stage(Collective::all_gather, outer_.all_gather, 0,
          {.ranks = same_index(),
           .in = all(whole(Space::in)),
           .out = all(across),
           .in_shape = whole(Space::in),
           .out_shape = across});
  }
  if (!works_inside()) return;
  for (int k = 0; k < groups(); ++k) {
    const Region blocks{Space::out, u32(k * g_) * pieces_, pieces_};
    stage(Collective::all_gather, inner_.all_gather, 0,
          {.ranks = my_group(),
           .in = groups() == 1 ? all(whole(Space::in)) : block_by_rank(Space::out, k * g_, 1),
           .out = all(blocks),
           .in_shape = blocks,
           .out_shape = blocks});
  }
}

void Composition::reduce_scatter() {
  need_equal_groups();
  expect(Collective::reduce_scatter, inner_.reduce_scatter, g_);
  expect(Collective::reduce_scatter, outer_.reduce_scatter, groups());
  const bool two_stages = works_inside() && groups() > 1;
  if (two_stages) kept_ = u32(groups()) * pieces_;
  if (works_inside()) {
    for (int k = 0; k < groups(); ++k) {
      const Region blocks{Space::in, u32(k * g_) * pieces_, pieces_};
      stage(Collective::reduce_scatter, inner_.reduce_scatter, 0,
            {.ranks = my_group(),
             .in = all(blocks),
             .out =
                 two_stages ? all({Space::tmp, u32(k) * pieces_, pieces_}) : all(whole(Space::out)),
             .in_shape = blocks,
             .out_shape = whole(Space::out),
             .completes = !two_stages});
    }
  }
  if (groups() > 1) {
    stage(Collective::reduce_scatter, outer_.reduce_scatter, 0,
          {.ranks = same_index(),
           .in = all(whole(two_stages ? Space::tmp : Space::in)),
           .out = all(whole(Space::out)),
           .in_shape = whole(Space::in),
           .out_shape = whole(Space::out),
           .completes = true});
  }
}

void Composition::broadcast() {
  expect_inside(Collective::broadcast, inner_.broadcast);
  expect(Collective::broadcast, outer_.broadcast, groups());
  const Region out = whole(Space::out);
  if (groups() > 1 && rank_ == leader(k_)) {
    stage(Collective::broadcast, outer_.broadcast, root_ / g_,
          {.ranks = leaders(),
           .in = all(whole(Space::in)),
           .out = all(out),
           .in_shape = out,
           .out_shape = out});
  }
  if (works_inside()) {
    stage(Collective::broadcast, inner_.broadcast, leader(k_) - k_ * g_,
          {.ranks = my_group(),
           .in = all(groups() == 1 ? whole(Space::in) : out),
           .out = all(out),
           .in_shape = out,
           .out_shape = out});
  }
}

void Composition::reduce() {
  expect_inside(Collective::reduce, inner_.reduce);
  expect(Collective::reduce, outer_.reduce, groups());
  const Region in = whole(Space::in);
  // Only the root has an `out`; the other leaders keep their group's sum in tmp.
  const auto sum = [this](int group) {
    return whole(group == root_ / g_ ? Space::out : Space::tmp);
  };
  const bool leads = rank_ == leader(k_);
  if (leads && works_inside() && rank_ != root_) kept_ = pieces_;
  if (works_inside()) {
    stage(Collective::reduce, inner_.reduce, leader(k_) - k_ * g_,
          {.ranks = my_group(),
           .in = all(in),
           .out = all(sum(k_)),
           .in_shape = in,
           .out_shape = in,
           .completes = groups() == 1});
  }
  if (groups() > 1 && leads) {
    stage(Collective::reduce, outer_.reduce, root_ / g_,
          {.ranks = leaders(),
           .in = [this, sum, in](int k) { return size_of(k) > 1 ? sum(k) : in; },
           .out = all(whole(Space::out)),
           .in_shape = in,
           .out_shape = in,
           .completes = true});
  }
}

RankPlan Composition::generate(std::string_view name) const {
  std::uint32_t widest = 1;
  for (const PlanHeader& h : expected_) widest = std::max(widest, h.widest * (pieces_ / h.pieces));
  RankPlanBuilder b(
      make_header(
          request_.collective, name, request_, rank_,
          {.pieces = blocks_ * pieces_, .slots = slots_, .lanes = lanes_, .widest = widest}),
      rank_);
  std::uint32_t tmp = 0;
  for (const Stage& s : stages_) {
    const auto& ranks = s.placement.ranks;
    const auto self = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    const RankPlan part = s.part->generate(s.request, static_cast<int>(self));
    if (&s != &stages_.front()) join_lanes(b, lanes_, rank_);
    embed(b, part, s.placement);
    tmp = std::max(tmp, part.tmp_chunks * (pieces_ / part.header.pieces));
  }
  b.reserve_tmp(kept_ + tmp);
  return b.finish();
}

Traffic Composition::textbook() const {
  Traffic sum;
  for (const Stage& s : stages_) {
    const auto& ranks = s.placement.ranks;
    const int self = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    // Chunks of ours in one of theirs.
    const std::uint32_t chunks = pieces_ / s.part->generate(s.request, self).header.pieces;
    const Traffic t = s.part->textbook(s.request, self);
    sum.sent += t.sent * chunks;
    sum.received += t.received * chunks;
  }
  return sum;
}

}  // namespace

RankPlan compose_hierarchical(const PlanRequest& request, std::string_view name,
                              const Family& inner, const Family& outer, int rank) {
  return Composition(request, inner, outer, rank).generate(name);
}

Traffic hierarchical_traffic(const PlanRequest& request, const Family& inner, const Family& outer,
                             int rank) {
  return Composition(request, inner, outer, rank).textbook();
}

}  // namespace tutti::algorithm

// Hierarchical: groups of neighbouring ranks (a node, say) finish what they can among themselves,
// so that less crosses the slower links between groups. Any algorithm can serve inside and any
// across; stages are embedded plans (embed.h) in one another's results.
//
//     all_reduce      reduce_scatter inside, all_reduce across, all_gather inside. With groups of
//                     unequal size, or without an algorithm for reduce_scatter: reduce to a leader,
//                     all_reduce among leaders, broadcast
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
#include <set>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/embed.h"
#include "collectives/algorithms/groups.h"
#include "core/error.h"

namespace tutti::algorithm {
namespace {

struct Stage {
  const Part* part;
  PlanRequest request;
  Placement placement;
};

/// Whether the plan's links carry anything but signals. (If one rank's do, so do all ranks'.)
bool sends_data(const RankPlan& plan) {
  const auto is_link = [](const Operand& o) { return o.is_link(); };
  for (const auto& lane : plan.lanes) {
    for (const Step& step : lane) {
      if (step.count > 0 && (std::ranges::any_of(plan.destinations(step), is_link) ||
                             std::ranges::any_of(plan.sources(step), is_link))) {
        return true;
      }
    }
  }
  return false;
}

/// One rank's way through the stages.
class Composition {
 public:
  Composition(const PlanRequest& request, const Family& inner, const Family& outer, int rank);

  RankPlan generate(std::string_view name) const;
  Traffic textbook() const;
  Hops hops() const;

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
  Groups groups_;
  // The stages' blocks have pieces_ chunks, a multiple of each part's pieces.
  std::uint32_t pieces_ = 1;
  std::uint32_t blocks_ = 1;  // of the stages in one of the whole plan
  std::uint32_t slots_ = 1;
  std::uint32_t lanes_ = 1;
  std::vector<PlanHeader> expected_;  // of the parts that put data on links
  std::uint32_t kept_ = 0;            // chunks of tmp in which a stage leaves its results
  std::vector<Stage> stages_;
};

Composition::Composition(const PlanRequest& request, const Family& inner, const Family& outer,
                         int rank)
    : request_(request), inner_(inner), outer_(outer), rank_(rank), groups_(request, rank) {
  if (needs_equal_groups(request.collective)) groups_.need_equal(request.collective);
  switch (request.collective) {
    case Collective::all_reduce:
      if (groups_.are_equal() && inner_.reduce_scatter.generate != nullptr) {
        all_reduce();
      } else {
        all_reduce_by_leaders();
      }
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

void Composition::expect(Collective c, const Part& part, int ranks) {
  const RankPlan plan = part.generate({c, ranks}, 0);
  const PlanHeader& h = plan.header;
  if (sends_data(plan)) expected_.push_back(h);
  pieces_ = std::lcm(pieces_, h.pieces);
  slots_ = std::max(slots_, h.slots);
  lanes_ = std::max(lanes_, h.lanes);
}

void Composition::expect_inside(Collective c, const Part& part) {
  std::set<int> sizes;
  for (int k = 0; k < groups_.count(); ++k) sizes.insert(groups_.size_of(k));
  for (const int size : sizes) expect(c, part, size);
}

void Composition::stage(Collective c, const Part& part, int root, Placement placement) {
  const int ranks = static_cast<int>(placement.ranks.size());
  placement.pieces = pieces_;
  placement.tmp = kept_;
  stages_.push_back({&part, {c, ranks, root}, std::move(placement)});
}

void Composition::all_reduce() {
  expect(Collective::reduce_scatter, inner_.reduce_scatter, groups_.size);
  expect(Collective::all_gather, inner_.all_gather, groups_.size);
  expect(Collective::all_reduce, outer_.all_reduce, groups_.count());
  blocks_ = u32(groups_.size);
  const Region mine{Space::out, u32(groups_.index) * pieces_, pieces_};
  const Places by_index = block_by_rank(Space::out, 0, 1);
  if (groups_.work_inside()) {
    stage(Collective::reduce_scatter, inner_.reduce_scatter, 0,
          {.ranks = groups_.inside(),
           .in = all(whole(Space::in)),
           .out = by_index,
           .in_shape = whole(Space::in),
           .out_shape = mine,
           .completes = groups_.count() == 1});
  }
  if (groups_.count() > 1) {
    stage(Collective::all_reduce, outer_.all_reduce, 0,
          {.ranks = groups_.same_index(),
           .in = all(groups_.work_inside() ? mine : whole(Space::in)),
           .out = all(mine),
           .in_shape = mine,
           .out_shape = mine,
           .completes = true});
  }
  if (groups_.work_inside()) {
    stage(Collective::all_gather, inner_.all_gather, 0,
          {.ranks = groups_.inside(),
           .in = by_index,
           .out = all(whole(Space::out)),
           .in_shape = mine,
           .out_shape = whole(Space::out)});
  }
}

void Composition::all_reduce_by_leaders() {
  expect_inside(Collective::reduce, inner_.reduce);
  expect_inside(Collective::broadcast, inner_.broadcast);
  expect(Collective::all_reduce, outer_.all_reduce, groups_.count());
  const Region out = whole(Space::out);
  const Places in_out = all(out);
  if (groups_.work_inside()) {
    stage(Collective::reduce, inner_.reduce, 0,
          {.ranks = groups_.inside(),
           .in = all(whole(Space::in)),
           .out = in_out,
           .in_shape = whole(Space::in),
           .out_shape = out,
           .completes = groups_.count() == 1});
  }
  if (groups_.count() > 1 && groups_.index == 0) {
    stage(Collective::all_reduce, outer_.all_reduce, 0,
          {.ranks = groups_.leaders(),
           .in = [this](int k) { return whole(groups_.size_of(k) > 1 ? Space::out : Space::in); },
           .out = in_out,
           .in_shape = out,
           .out_shape = out,
           .completes = true});
  }
  if (groups_.work_inside()) {
    stage(Collective::broadcast, inner_.broadcast, 0,
          {.ranks = groups_.inside(),
           .in = in_out,
           .out = in_out,
           .in_shape = out,
           .out_shape = out});
  }
}

void Composition::all_gather() {
  expect(Collective::all_gather, inner_.all_gather, groups_.size);
  expect(Collective::all_gather, outer_.all_gather, groups_.count());
  if (groups_.count() > 1) {
    const Region across{Space::out, u32(groups_.index) * pieces_, u32(groups_.size) * pieces_};
    stage(Collective::all_gather, outer_.all_gather, 0,
          {.ranks = groups_.same_index(),
           .in = all(whole(Space::in)),
           .out = all(across),
           .in_shape = whole(Space::in),
           .out_shape = across});
  }
  if (!groups_.work_inside()) return;
  for (int k = 0; k < groups_.count(); ++k) {
    const Region blocks{Space::out, u32(k * groups_.size) * pieces_, pieces_};
    stage(Collective::all_gather, inner_.all_gather, 0,
          {.ranks = groups_.inside(),
           .in = groups_.count() == 1 ? all(whole(Space::in))
                                      : block_by_rank(Space::out, k * groups_.size, 1),
           .out = all(blocks),
           .in_shape = blocks,
           .out_shape = blocks});
  }
}

void Composition::reduce_scatter() {
  expect(Collective::reduce_scatter, inner_.reduce_scatter, groups_.size);
  expect(Collective::reduce_scatter, outer_.reduce_scatter, groups_.count());
  const bool two_stages = groups_.work_inside() && groups_.count() > 1;
  if (two_stages) kept_ = u32(groups_.count()) * pieces_;
  if (groups_.work_inside()) {
    for (int k = 0; k < groups_.count(); ++k) {
      const Region blocks{Space::in, u32(k * groups_.size) * pieces_, pieces_};
      stage(Collective::reduce_scatter, inner_.reduce_scatter, 0,
            {.ranks = groups_.inside(),
             .in = all(blocks),
             .out =
                 two_stages ? all({Space::tmp, u32(k) * pieces_, pieces_}) : all(whole(Space::out)),
             .in_shape = blocks,
             .out_shape = whole(Space::out),
             .completes = !two_stages});
    }
  }
  if (groups_.count() > 1) {
    stage(Collective::reduce_scatter, outer_.reduce_scatter, 0,
          {.ranks = groups_.same_index(),
           .in = all(whole(two_stages ? Space::tmp : Space::in)),
           .out = all(whole(Space::out)),
           .in_shape = whole(Space::in),
           .out_shape = whole(Space::out),
           .completes = true});
  }
}

void Composition::broadcast() {
  expect_inside(Collective::broadcast, inner_.broadcast);
  expect(Collective::broadcast, outer_.broadcast, groups_.count());
  const Region out = whole(Space::out);
  if (groups_.count() > 1 && groups_.lead()) {
    stage(Collective::broadcast, outer_.broadcast, groups_.group_of(groups_.root),
          {.ranks = groups_.leaders(),
           .in = all(whole(Space::in)),
           .out = all(out),
           .in_shape = out,
           .out_shape = out});
  }
  if (groups_.work_inside()) {
    stage(Collective::broadcast, inner_.broadcast, groups_.leader_index(),
          {.ranks = groups_.inside(),
           .in = all(groups_.count() == 1 ? whole(Space::in) : out),
           .out = all(out),
           .in_shape = out,
           .out_shape = out});
  }
}

void Composition::reduce() {
  expect_inside(Collective::reduce, inner_.reduce);
  expect(Collective::reduce, outer_.reduce, groups_.count());
  const Region in = whole(Space::in);
  // Only the root has an `out`; the other leaders keep their group's sum in tmp.
  const auto sum = [this](int group) {
    return whole(group == groups_.group_of(groups_.root) ? Space::out : Space::tmp);
  };
  const bool leads = groups_.lead();
  if (leads && groups_.work_inside() && rank_ != groups_.root) kept_ = pieces_;
  if (groups_.work_inside()) {
    stage(Collective::reduce, inner_.reduce, groups_.leader_index(),
          {.ranks = groups_.inside(),
           .in = all(in),
           .out = all(sum(groups_.mine)),
           .in_shape = in,
           .out_shape = in,
           .completes = groups_.count() == 1});
  }
  if (groups_.count() > 1 && leads) {
    stage(Collective::reduce, outer_.reduce, groups_.group_of(groups_.root),
          {.ranks = groups_.leaders(),
           .in = [this, sum, in](int k) { return groups_.size_of(k) > 1 ? sum(k) : in; },
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
  // No lane may begin the next tile while another still reads this one's tmp.
  if (kept_ + tmp > 0) join_lanes(b, lanes_, rank_);
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

Hops Composition::hops() const {
  Hops sum;
  for (const Stage& s : stages_) {
    const auto& ranks = s.placement.ranks;
    const bool inside = groups_.group_of(ranks.front()) == groups_.group_of(ranks.back());
    (inside ? sum.inside : sum.across) += s.part->hops(static_cast<int>(ranks.size()));
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

Hops hierarchical_hops(const PlanRequest& request, const Family& inner, const Family& outer) {
  // Rank 0 leads its group, which is not smaller than others: it takes part in all stages.
  return Composition(request, inner, outer, 0).hops();
}

}  // namespace tutti::algorithm

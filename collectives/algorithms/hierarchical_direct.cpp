// Hierarchical for groups that are hosts: windows inside of a group, links straight across. In each
// group one rank acts for each rank r of the others, its *deputy* there. All data that cross
// between two groups pass between r and its deputy. So all ranks of a host carry their part of the
// traffic, every byte crosses as seldom as it can, and nothing is copied on the way: sums go
// straight into slots, and arriving data from slots into all outputs of the group.
//
//     all_reduce      every rank owns a chunk. Its deputies send it their groups' sums of the
//                     chunk; it adds its own group's, and sends the result to the deputies
//     reduce_scatter  the first half of that, block by block
//     all_gather      the second half
//     broadcast       of each chunk there is a carrier in every group. Those form a chain, or a
//                     binomial tree, from the root's group on
//     reduce          the same towards the root; or straight to the carriers of the root's group
//
// Groups may have different sizes: the deputy of rank i of its group is rank i modulo the size.
// *ready* and *done* messages inside of a group say when its memory may be addressed.
// The lanes of a plan with windows meet after each tile, while the wire is idle. So the pipelined
// ones, for long calls, have three messages of each kind in a tile: the first ones are on their way
// while the others are made.
//
// In the canonical order (PlanRequest::in_order) an owner first stores the sum of its own group, in
// tmp, and then adds the groups' sums in their order: a pass over its chunk more. The plan is wide,
// so sums of 16- and 8-bit floats cross as float32, and results as they are.
//
// A rank makes all its sums before it waits: each has a slot, and all_reduce's result one more.
#include <optional>
#include <span>
#include <vector>

#include "collectives/algorithms/common.h"
#include "collectives/algorithms/generators.h"
#include "collectives/algorithms/groups.h"

namespace tutti::algorithm {
namespace {

/// Of the pipelined ones. With one more, links between GPUs would have too few slots.
constexpr std::uint32_t kDepth = 3;

/// A rank's group, and the ranks that it deals with in the others.
class Team {
 public:
  Team(const PlanRequest& request, int rank)
      : groups_(request, rank), in_order_(request.in_order && groups_.count() > 1) {
    for (const int q : groups_.inside()) {
      if (q != rank) peers_.push_back(q);
    }
    if (in_order_) groups_.need_subtrees();
  }

  const Groups& groups() const { return groups_; }
  /// The others of the group.
  const std::vector<int>& peers() const { return peers_; }

  /// Of this rank, one in each other group.
  std::vector<int> deputies() const {
    std::vector<int> all;
    for (const int k : others(groups_.count(), groups_.mine)) all.push_back(deputy(k));
    return all;
  }
  /// The ranks of other groups for which this one is the deputy.
  std::vector<int> deputed() const {
    std::vector<int> all;
    const int step = groups_.size_of(groups_.mine);
    for (const int k : others(groups_.count(), groups_.mine)) {
      for (int i = groups_.index; i < groups_.size_of(k); i += step) {
        all.push_back(groups_.begin(k) + i);
      }
    }
    return all;
  }

  /// The same chunk of all ranks of the group, and the links from or to some others.
  std::vector<Operand> inside(Operand chunk, std::span<const int> and_links = {}) const {
    std::vector<Operand> all;
    for (const int q : groups_.inside()) all.push_back(chunk.at(q));
    for (const int q : and_links) all.push_back(to(q));
    return all;
  }

  /// Of a plan in the canonical order, among groups.
  Format format() const { return in_order_ ? Format::wide : Format::plain; }

  /// Sums up what all ranks have in `chunk`, which is this rank's, for `destinations`: of its own
  /// group where it is, of the others from the rank that `partner(k)` is in group k.
  template <class Partner>
  void sum_up(RankPlanBuilder& b, Operand chunk, const std::vector<Operand>& destinations,
              Partner&& partner) {
    auto lane = b.lane(0);
    const auto step = [&](const std::vector<Operand>& sources) {
      lane.step(destinations, sources).shaped_as(chunk).completes();
    };
    if (!in_order_) {
      std::vector<int> partners;
      for (const int k : others(groups_.count(), groups_.mine)) partners.push_back(partner(k));
      return step(inside(chunk, partners));
    }
    Operand own = chunk;
    if (!peers_.empty()) {
      if (!stored_) stored_ = tmp(b.reserve_tmp(1));
      lane.step(std::vector{*stored_}, inside(chunk));
      own = *stored_;
    }
    std::vector<Operand> sums;
    for (int k = 0; k < groups_.count(); ++k) {
      sums.push_back(k == groups_.mine ? own : from(partner(k)));
    }
    step(sums);
  }
  /// Of this rank, in group k.
  int deputy(int k) const { return groups_.begin(k) + groups_.index % groups_.size_of(k); }

 private:
  Groups groups_;
  bool in_order_;
  std::vector<int> peers_;
  std::optional<Operand> stored_;  // its own group's sum, one chunk after the other
};

/// The rank that passes on `chunk` in group k.
int carrier(const Groups& groups, int k, std::uint32_t chunk) {
  return groups.begin(k) + static_cast<int>(chunk % u32(groups.size_of(k)));
}

/// How chunks pass from group to group, the root's first.
class Route {
 public:
  Route(const Groups& groups, bool chain)
      : groups_(groups),
        count_(groups.count()),
        label_(wrap(groups.mine - groups.group_of(groups.root), count_)),
        chain_(chain) {}

  bool is_first() const { return label_ == 0; }
  /// The rank that carries `chunk` in the group before this one.
  int before(std::uint32_t chunk) const {
    return at(chain_ ? label_ - 1 : label_ & (label_ - 1), chunk);
  }
  /// The ranks that carry it in the groups after this one.
  std::vector<int> after(std::uint32_t chunk) const {
    std::vector<int> all;
    if (chain_) {
      if (label_ + 1 < count_) all.push_back(at(label_ + 1, chunk));
      return all;
    }
    // The one with the most groups behind it first.
    int step = label_ == 0 ? power_of_two_in(count_) : (label_ & -label_) / 2;
    for (; step > 0; step /= 2) {
      if (label_ + step < count_) all.push_back(at(label_ + step, chunk));
    }
    return all;
  }
  /// Of this rank's group.
  bool carries(std::uint32_t chunk) const {
    return chunk % u32(groups_.size_of(groups_.mine)) == u32(groups_.index);
  }

 private:
  int at(int label, std::uint32_t chunk) const {
    return carrier(groups_, (label + groups_.group_of(groups_.root)) % count_, chunk);
  }

  const Groups& groups_;
  int count_;
  int label_;
  bool chain_;
};

std::string_view name_of(bool chain) {
  return chain ? "hierarchical_chain" : "hierarchical_binomial";
}

RankPlan broadcast(const PlanRequest& request, int rank, bool chain) {
  const Team team(request, rank);
  const std::uint32_t pieces = u32(team.groups().largest());
  const PlanHeader header =
      make_header(Collective::broadcast, name_of(chain), request, rank, {.pieces = pieces});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const Route route(team.groups(), chain);
  meet(lane, team.peers());
  for (std::uint32_t c = 0; c < pieces; ++c) {
    if (!route.carries(c)) continue;
    const Operand source = route.is_first() ? in(c).at(header.root) : from(route.before(c));
    lane.step(team.inside(out(c), route.after(c)), std::vector{source});
  }
  meet(lane, team.peers());
  return b.finish();
}

RankPlan reduce(const PlanRequest& request, int rank, bool chain) {
  const Team team(request, rank);
  const std::uint32_t pieces = u32(team.groups().largest());
  const PlanHeader header =
      make_header(Collective::reduce, name_of(chain), request, rank, {.pieces = pieces});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const Route route(team.groups(), chain);
  meet(lane, team.peers());
  for (std::uint32_t c = 0; c < pieces; ++c) {
    if (!route.carries(c)) continue;
    const Operand sum = route.is_first() ? out(c).at(header.root) : to(route.before(c));
    lane.step(std::vector{sum}, team.inside(in(c), route.after(c)))
        .shaped_as(in(c))
        .completes(route.is_first());
  }
  meet(lane, team.peers());
  return b.finish();
}

RankPlan straight_reduce(const PlanRequest& request, int rank) {
  Team team(request, rank);
  const Groups& groups = team.groups();
  const std::uint32_t pieces = u32(groups.largest());
  const PlanHeader header = make_header(Collective::reduce, "hierarchical_direct", request, rank,
                                        {.pieces = pieces, .format = team.format()});
  RankPlanBuilder b(header, rank);
  auto lane = b.lane(0);
  const int first = groups.group_of(groups.root);
  meet(lane, team.peers());
  for (std::uint32_t c = 0; c < pieces; ++c) {
    if (carrier(groups, groups.mine, c) != rank) continue;
    if (groups.mine == first) {
      team.sum_up(b, in(c), {out(c).at(header.root)}, [&](int k) { return carrier(groups, k, c); });
    } else {
      lane.step(std::vector{to(carrier(groups, first, c))}, team.inside(in(c)));
    }
  }
  meet(lane, team.peers());
  return b.finish();
}

std::string_view name_of(std::uint32_t depth) {
  return depth == 1 ? "hierarchical_direct" : "hierarchical_pipelined";
}

RankPlan all_reduce(const PlanRequest& request, int rank, std::uint32_t depth) {
  Team team(request, rank);
  const std::uint32_t slots = team.groups().count() > 1 ? depth + 1 : 1;
  RankPlanBuilder b(
      make_header(Collective::all_reduce, name_of(depth), request, rank,
                  {.pieces = u32(request.ranks) * depth, .slots = slots, .format = team.format()}),
      rank);
  auto lane = b.lane(0);
  const auto deputed = team.deputed();
  const auto chunk = [&](int owner, std::uint32_t j) { return u32(owner) * depth + j; };
  meet(lane, team.peers());
  for (std::uint32_t j = 0; j < depth; ++j) {
    for (const int r : deputed) lane.step(std::vector{to(r)}, team.inside(in(chunk(r, j))));
  }
  for (std::uint32_t j = 0; j < depth; ++j) {
    const std::uint32_t own = chunk(rank, j);
    team.sum_up(b, in(own), team.inside(out(own), team.deputies()),
                [&](int k) { return team.deputy(k); });
  }
  for (std::uint32_t j = 0; j < depth; ++j) {
    for (const int r : deputed) lane.step(team.inside(out(chunk(r, j))), std::vector{from(r)});
  }
  meet(lane, team.peers());
  return b.finish();
}

RankPlan reduce_scatter(Collective collective, const PlanRequest& request, int rank,
                        std::uint32_t depth) {
  Team team(request, rank);
  const std::uint32_t slots = team.groups().count() > 1 ? depth : 1;
  RankPlanBuilder b(make_header(collective, name_of(depth), request, rank,
                                {.pieces = depth, .slots = slots, .format = team.format()}),
                    rank);
  auto lane = b.lane(0);
  meet(lane, team.peers());
  for (std::uint32_t j = 0; j < depth; ++j) {
    for (const int r : team.deputed()) {
      lane.step(std::vector{to(r)}, team.inside(in(u32(r) * depth + j)));
    }
  }
  for (std::uint32_t j = 0; j < depth; ++j) {
    team.sum_up(b, in(u32(rank) * depth + j), {out(j)}, [&](int k) { return team.deputy(k); });
  }
  meet(lane, team.peers());
  return b.finish();
}

RankPlan all_gather(const PlanRequest& request, int rank, std::uint32_t depth) {
  const Team team(request, rank);
  const std::uint32_t slots = team.groups().count() > 1 ? depth : 1;
  RankPlanBuilder b(make_header(Collective::all_gather, name_of(depth), request, rank,
                                {.pieces = depth, .slots = slots}),
                    rank);
  auto lane = b.lane(0);
  meet(lane, team.peers());
  for (std::uint32_t j = 0; j < depth; ++j) {
    lane.step(team.inside(out(u32(rank) * depth + j), team.deputies()), std::vector{in(j)});
  }
  for (std::uint32_t j = 0; j < depth; ++j) {
    for (const int r : team.deputed()) {
      lane.step(team.inside(out(u32(r) * depth + j)), std::vector{from(r)});
    }
  }
  meet(lane, team.peers());
  return b.finish();
}

}  // namespace

RankPlan hierarchical_direct_all_reduce(const PlanRequest& request, int rank) {
  return all_reduce(request, rank, 1);
}
RankPlan hierarchical_direct_reduce_scatter(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter, request, rank, 1);
}
RankPlan hierarchical_direct_reduce_scatter_v(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter_v, request, rank, 1);
}
RankPlan hierarchical_direct_reduce(const PlanRequest& request, int rank) {
  return straight_reduce(request, rank);
}
RankPlan hierarchical_direct_all_gather(const PlanRequest& request, int rank) {
  return all_gather(request, rank, 1);
}
RankPlan hierarchical_pipelined_all_reduce(const PlanRequest& request, int rank) {
  return all_reduce(request, rank, kDepth);
}
RankPlan hierarchical_pipelined_reduce_scatter(const PlanRequest& request, int rank) {
  return reduce_scatter(Collective::reduce_scatter, request, rank, kDepth);
}
RankPlan hierarchical_pipelined_all_gather(const PlanRequest& request, int rank) {
  return all_gather(request, rank, kDepth);
}

RankPlan hierarchical_chain_broadcast(const PlanRequest& request, int rank) {
  return broadcast(request, rank, true);
}
RankPlan hierarchical_binomial_broadcast(const PlanRequest& request, int rank) {
  return broadcast(request, rank, false);
}
RankPlan hierarchical_chain_reduce(const PlanRequest& request, int rank) {
  return reduce(request, rank, true);
}
RankPlan hierarchical_binomial_reduce(const PlanRequest& request, int rank) {
  return reduce(request, rank, false);
}

}  // namespace tutti::algorithm

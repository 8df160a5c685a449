#include "collectives/model/domains.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "core/error.h"

namespace tutti {
namespace {

/// Gives the ranks of a plan, and the blocks that belong to them, other numbers.
class Renumbering {
 public:
  Renumbering(const RankPlan& plan, const Domains& domains)
      : header_(plan.header), self_(plan.rank), domains_(domains) {}

  /// Whether no message of such a plan carries blocks of several ranks. All ranks find the same.
  static bool is_possible(const PlanHeader& h) {
    const bool blocks_of_ranks = in_blocks(h.collective, h.ranks, h.root, h.root) > 1 ||
                                 out_blocks(h.collective, h.ranks, h.root, h.root) > 1;
    return h.collective != Collective::send_recv && (!blocks_of_ranks || h.widest <= h.pieces);
  }

  Operand operand(const Step& step, Operand o) const {
    if (!o.is_link() && o.space != Space::tmp) {
      o.chunk = chunk(o.space, o.is_remote() ? o.rank : self_, o.chunk, step.count);
    }
    if (o.is_link() || o.is_remote()) o.rank = domains_.rank_at(o.rank);
    return o;
  }
  std::uint32_t shape(const Step& step) const {
    return chunk(step.shape_space, self_, step.shape_chunk, step.count);
  }

 private:
  std::uint32_t chunk(Space space, int owner, std::uint32_t c, std::uint32_t count) const {
    const auto blocks = space == Space::in ? in_blocks : out_blocks;
    if (blocks(header_.collective, header_.ranks, owner, header_.root) <= 1 || count == 0) return c;
    const auto renumbered = [&](std::uint32_t x) {
      const int block = domains_.rank_at(static_cast<int>(x / header_.pieces));
      return static_cast<std::uint32_t>(block) * header_.pieces + x % header_.pieces;
    };
    const std::uint32_t first = renumbered(c);
    for (std::uint32_t i = 1; i < count; ++i) {
      if (renumbered(c + i) == first + i) continue;
      throw Error(ErrorCode::internal, "a step of " + std::string(name(header_.collective)) +
                                           " by '" + header_.algorithm +
                                           "' moves blocks that are apart");
    }
    return first;
  }

  PlanHeader header_;
  int self_;
  const Domains& domains_;
};

RankPlan renumbered(RankPlan plan, const Domains& domains) {
  const Renumbering to(plan, domains);
  for (auto& lane : plan.lanes) {
    for (Step& step : lane) {
      for (std::uint32_t i = 0; i < std::uint32_t{step.destinations} + step.sources; ++i) {
        Operand& o = plan.operands[step.first_operand + i];
        o = to.operand(step, o);
      }
      if (step.count > 0) step.shape_chunk = to.shape(step);
    }
  }
  plan.rank = domains.rank_at(plan.rank);
  if (is_rooted(plan.header.collective)) plan.header.root = domains.rank_at(plan.header.root);
  return plan;
}

}  // namespace

Domains::Domains(std::span<const int> of) {
  std::map<int, int> sizes, first;
  for (std::size_t r = 0; r < of.size(); ++r) {
    ++sizes[of[r]];
    first.try_emplace(of[r], static_cast<int>(r));
  }
  if (sizes.size() <= 1 || sizes.begin()->first < 0) return;
  count_ = static_cast<int>(sizes.size());
  of_.assign(of.begin(), of.end());
  order_.resize(of.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](int rank) {
    return std::pair{-sizes[domain(rank)], first[domain(rank)]};
  });
  places_.resize(of.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    places_[static_cast<std::size_t>(order_[i])] = static_cast<int>(i);
  }
  const int largest = sizes[domain(order_.front())];
  const auto full =
      std::ranges::count_if(sizes, [&](const auto& s) { return s.second == largest; });
  if (full >= count_ - 1) group_ = largest;
}

Domains Domains::even(int ranks, int count) {
  std::vector<int> of(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    of[static_cast<std::size_t>(r)] = static_cast<int>(std::int64_t{r} * count / ranks);
  }
  return Domains(of);
}

Domains Domains::among(std::span<const int> ranks) const {
  if (count_ == 1) return {};
  std::vector<int> of;
  for (const int rank : ranks) of.push_back(domain(rank));
  return Domains(of);
}

PlanRequest placed(const PlanRequest& request, const Domains& domains) {
  PlanRequest p = request;
  if (domains.ranks() != request.ranks) return p;
  if (is_rooted(request.collective)) p.root = domains.place_of(request.root);
  const int group = domains.group();
  const bool fits =
      group > 0 && (request.ranks % group == 0 || !needs_equal_groups(request.collective));
  if (request.group == 0 && fits) p.group = group;
  return p;
}

RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  const Domains& domains) {
  const auto is_one = [&](int r) { return r >= 0 && r < request.ranks; };
  if (domains.ranks() != request.ranks || !is_one(rank) || !is_one(request.root)) {
    return algorithm.generate(request, rank);
  }
  RankPlan plan = algorithm.generate(placed(request, domains), domains.place_of(rank));
  if (!Renumbering::is_possible(plan.header)) return algorithm.generate(request, rank);
  return renumbered(std::move(plan), domains);
}

}  // namespace tutti

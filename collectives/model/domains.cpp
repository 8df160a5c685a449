#include "collectives/model/domains.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/algorithms/common.h"
#include "core/error.h"

namespace tutti {
namespace {

/// Gives the ranks of a plan, and the blocks that belong to them, other numbers.
class Renumbering {
 public:
  Renumbering(const RankPlan& plan, const Domains& domains)
      : header_(plan.header), self_(plan.rank), domains_(domains) {}

  /// Whether no message of such a plan carries blocks of several ranks, and its sums may have
  /// another order. All ranks find the same.
  static bool is_possible(const PlanHeader& h) {
    const bool blocks_of_ranks = in_blocks(h.collective, h.ranks, h.root, h.root) > 1 ||
                                 out_blocks(h.collective, h.ranks, h.root, h.root) > 1;
    return h.collective != Collective::send_recv && h.format != Format::compressed &&
           (!blocks_of_ranks || h.widest <= h.pieces);
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

int count_of(const auto& container) { return static_cast<int>(container.size()); }

/// The part as it is before it gets other numbers; none where it keeps those that it has.
std::optional<RankPlan> placed_part(const Algorithm& algorithm, const PlanRequest& request,
                                    int rank, const Domains& domains) {
  const auto is_one = [&](int r) { return r >= 0 && r < request.ranks; };
  if (domains.ranks() != request.ranks || !is_one(rank) || !is_one(request.root)) return {};
  RankPlan plan = algorithm.generate(placed(algorithm, request, domains), domains.place_of(rank));
  if (!Renumbering::is_possible(plan.header)) return {};
  return plan;
}

}  // namespace

Domains::Domains(std::span<const int> of) {
  std::map<int, int> numbers;
  for (const int domain : of) {
    const int number = numbers.try_emplace(domain, count_of(numbers)).first->second;
    of_.push_back(number);
    if (number == count_of(sizes_)) sizes_.push_back(0);
    ++sizes_[static_cast<std::size_t>(number)];
  }
  if (sizes_.size() <= 1 || numbers.begin()->first < 0) {
    *this = Domains();
    return;
  }
  count_ = count_of(sizes_);
  order_.resize(of.size());
  std::iota(order_.begin(), order_.end(), 0);
  arrange([](int) { return 0; });
  std::ranges::sort(sizes_, std::greater());
  if (std::ranges::count(sizes_, sizes_.front()) >= count_ - 1) group_ = sizes_.front();
}

void Domains::arrange(const std::function<int(int)>& within) {
  std::vector<int> ranks(static_cast<std::size_t>(count_));
  for (const int domain : of_) ++ranks[static_cast<std::size_t>(domain)];
  std::ranges::stable_sort(order_, {}, [&](int rank) {
    return std::tuple{-ranks[static_cast<std::size_t>(domain(rank))], domain(rank), within(rank)};
  });
  places_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    places_[static_cast<std::size_t>(order_[i])] = static_cast<int>(i);
  }
}

Domains Domains::even(int ranks, int count) {
  std::vector<int> of(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    of[static_cast<std::size_t>(r)] = static_cast<int>(std::int64_t{r} * count / ranks);
  }
  return Domains(of);
}

Domains Domains::in_order(std::span<const int> ranks) {
  Domains d;
  d.of_.assign(ranks.size(), 0);
  d.order_.assign(ranks.begin(), ranks.end());
  d.places_.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    d.places_[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
  }
  return d;
}

Domains Domains::subtrees(const Domains& hosts) {
  if (hosts.count() == 1) return {};
  const int ranks = hosts.ranks();
  const auto are_on_one_host = [&](int size) {
    for (int r = 0; r < ranks; ++r) {
      if (!hosts.near(r, r - r % size)) return false;
    }
    return true;
  };
  int size = 1;
  while (are_on_one_host(size * 2)) size *= 2;
  std::vector<int> of(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) of[static_cast<std::size_t>(r)] = r / size;
  return Domains(of);
}

Domains Domains::on_hosts(std::span<const int> host, std::span<const int> domain) {
  std::set<int> unknown;
  for (std::size_t r = 0; r < host.size(); ++r) {
    if (domain[r] < 0) unknown.insert(host[r]);
  }
  std::map<std::pair<int, int>, int> numbers;
  std::vector<int> of;
  for (std::size_t r = 0; r < host.size(); ++r) {
    const std::pair key{host[r], unknown.contains(host[r]) ? -1 : domain[r]};
    of.push_back(numbers.try_emplace(key, count_of(numbers)).first->second);
  }
  return Domains(of);
}

Domains Domains::among(std::span<const int> ranks) const {
  if (count_ == 1 && of_.empty()) return {};
  if (count_ == 1) {
    std::vector<int> order(ranks.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {},
                      [&](int i) { return place_of(ranks[static_cast<std::size_t>(i)]); });
    return in_order(order);
  }
  std::vector<int> of;
  for (const int rank : ranks) of.push_back(domain(rank));
  return Domains(of);
}

Domains Domains::refined(const Domains& finer) const {
  Domains all = *this;
  if (finer.ranks() == ranks()) all.arrange([&](int rank) { return finer.place_of(rank); });
  return all;
}

PlanRequest placed(const Algorithm& algorithm, const PlanRequest& request, const Domains& domains) {
  PlanRequest p = request;
  if (domains.ranks() != request.ranks) return p;
  if (is_rooted(request.collective)) p.root = domains.place_of(request.root);
  if (request.group != 0 || !request.groups.empty() || domains.count() == 1) return p;
  const int group = domains.group();
  const bool any_sizes = algorithm.groups != Algorithm::Groups::equal;
  if (group > 0 && (request.ranks % group == 0 || any_sizes)) p.group = group;
  if (group == 0 && any_sizes) p.groups = domains.sizes();
  return p;
}

RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  const Domains& domains) {
  std::optional<RankPlan> part = placed_part(algorithm, request, rank, domains);
  return part ? renumbered(std::move(*part), domains) : algorithm.generate(request, rank);
}

RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  std::span<const Domains> lanes) {
  PlanRequest one = request;
  one.lanes = 1;
  std::vector<RankPlan> parts;
  for (const Domains& lane : lanes) parts.push_back(generate(algorithm, one, rank, lane));
  std::vector<const RankPlan*> all;
  for (const RankPlan& part : parts) all.push_back(&part);
  return algorithm::join_slices(all);
}

Traffic textbook(const Algorithm& algorithm, const PlanRequest& request, int rank,
                 const Domains& domains) {
  if (!placed_part(algorithm, request, rank, domains)) return algorithm.textbook(request, rank);
  return algorithm.textbook(placed(algorithm, request, domains), domains.place_of(rank));
}

}  // namespace tutti

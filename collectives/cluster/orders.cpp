// See orders.h. As the search for rings on a graph (model/lanes.h), with a cluster's links: what is
// said of its network counts, not what a file knows of its ports.
#include "collectives/cluster/orders.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "collectives/model/budget.h"
#include "collectives/model/equal_packing.h"
#include "collectives/model/packing.h"
#include "collectives/model/tour.h"

namespace tutti::cluster {
namespace {

// Of the linear program; and rings for each number of lanes.
constexpr int kRounds = 400, kOffers = 128;
constexpr double kGoodEnough = 0.99;

class OrderSearch {
 public:
  explicit OrderSearch(const Cluster& c)
      : c_(c), k_(c.ranks_of_a_host()), between_hosts_(c.hosts() > 1) {}

  Orders widest(std::size_t most) {
    Orders known = turned(Orders(between_hosts_ ? lanes(most) : 1, plain_order(c_)));
    const double alone = carried({known.front()}) * static_cast<double>(most);
    const auto offer = [&](const std::vector<double>& prices) { return cheapest(prices); };
    Budget program(kSearchSteps / 2);
    budget_ = &program;
    const double bound = std::min(pack(c_.capacities(), offer, kRounds, program).sum, alone);
    const double of_known = carried(known);
    if (of_known >= kGoodEnough * bound) return known;
    Budget rings(kSearchSteps / 2);
    budget_ = &rings;
    const EquallyPacked found =
        pack_equally(c_.capacities(), offer, static_cast<int>(most), kOffers, bound, rings);
    if (found.sum() <= of_known) return known;
    Orders orders;
    for (const int id : found.ids) orders.push_back(offered_[static_cast<std::size_t>(id)]);
    return orders;
  }

 private:
  /// A lane for each port, as long as there are ranks to begin at.
  std::size_t lanes(std::size_t most) const {
    return std::min(
        {static_cast<std::size_t>(std::max(c_.ports(), 1)), static_cast<std::size_t>(k_), most});
  }

  Load load_of(const std::vector<int>& order) const {
    std::map<int, double> sums;
    const auto add = [&](const std::vector<int>& links) {
      for (const int l : links) sums[l] += 1;
    };
    for (std::size_t i = 1; i < order.size(); ++i) add(c_.inside(order[i - 1], order[i]).links);
    if (between_hosts_) {
      const Route route = c_.across(order.back(), order.front());
      add(route.links);
      add(route.far);
    } else {
      add(c_.inside(order.back(), order.front()).links);
    }
    return {sums.begin(), sums.end()};
  }

  /// GB/s of lanes that all carry the same.
  double carried(const Orders& orders) const {
    std::vector<double> used(c_.capacities().size());
    for (const auto& order : orders) {
      for (const auto& [l, amount] : load_of(order)) used[static_cast<std::size_t>(l)] += amount;
    }
    double most = 0;
    for (std::size_t l = 0; l < used.size(); ++l)
      most = std::max(most, used[l] / c_.capacities()[l]);
    return static_cast<double>(orders.size()) / most;
  }

  std::pair<int, Load> cheapest(const std::vector<double>& prices) {
    const auto price = [&](const std::vector<int>& links) {
      double sum = 0;
      for (const int l : links) sum += prices[static_cast<std::size_t>(l)];
      return sum;
    };
    const int first = between_hosts_ ? 1 : 0;  // city 0 is the network
    const int n = k_ + first;
    std::vector<double> costs(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
    const auto cost = [&](int from, int to) -> double& {
      return costs[static_cast<std::size_t>(from) * static_cast<std::size_t>(n) +
                   static_cast<std::size_t>(to)];
    };
    for (int i = 0; i < k_; ++i) {
      for (int j = 0; j < k_; ++j) {
        if (i != j) cost(i + first, j + first) = price(c_.inside(i, j).links);
      }
      if (first == 0) continue;
      const Route route = c_.across(i, i);
      cost(i + 1, 0) = price(route.links);
      cost(0, i + 1) = price(route.far);
    }
    std::vector<std::vector<int>> groups;
    if (first == 1) groups.push_back({0});
    for (const auto& parts : c_.devices()) {
      auto& cities = groups.emplace_back();
      for (const int part : parts) cities.push_back(part + first);
    }
    const CheapestTour tour = cheapest_tour(costs, n, groups);
    budget_->spend(tour.steps + 4.0 * n * n);
    std::vector<int> order;
    for (const int city : tour.order) {
      if (city >= first) order.push_back(city - first);
    }
    offered_.push_back(order);
    return {static_cast<int>(offered_.size()) - 1, load_of(order)};
  }

  const Cluster& c_;
  const int k_;
  const bool between_hosts_;
  Orders offered_;
  Budget* budget_ = nullptr;  // of the search that is under way
};

}  // namespace

std::vector<int> plain_order(const Cluster& c) {
  std::vector<int> plain(static_cast<std::size_t>(c.ranks_of_a_host()));
  std::iota(plain.begin(), plain.end(), 0);
  return plain;
}

Orders turned(Orders orders) {
  for (std::size_t l = 0; l < orders.size(); ++l) {
    const std::size_t by = l * orders[l].size() / orders.size();
    std::ranges::rotate(orders[l], orders[l].begin() + static_cast<std::ptrdiff_t>(by));
  }
  return orders;
}

Orders widest_orders(const Cluster& c, std::size_t most) {
  if (c.ranks_of_a_host() == 1) return {plain_order(c)};
  return OrderSearch(c).widest(most);
}

}  // namespace tutti::cluster

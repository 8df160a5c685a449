// See orders.h. The search is that for rings on a graph (model/lanes.h), with a cluster's links:
// the description of its network counts, and not the ports in a file.
#include "collectives/cluster/orders.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/model/budget.h"
#include "collectives/model/equal_packing.h"
#include "collectives/model/lane_ways.h"
#include "collectives/model/packing.h"

namespace tutti::cluster {
namespace {

// Of the linear program; and rings for each number of lanes.
constexpr int kRounds = 400, kOffers = 128;
constexpr double kGoodEnough = 0.99;

/// Each rank's way out of a host, and into one, counts as one to a port that all have.
RowsOfRanks rows_of(const Cluster& c) {
  RowsOfRanks rows;
  rows.ranks = c.ranks_of_a_host();
  rows.ports = c.hosts() > 1 ? 1 : 0;
  rows.capacities = c.capacities();
  rows.devices = c.devices();
  for (int i = 0; i < rows.ranks; ++i) {
    for (int j = 0; j < rows.ranks; ++j) rows.between.push_back(c.inside(i, j).links);
    if (rows.ports == 0) continue;
    GpuRoute route = c.across(i, i);
    rows.out.push_back(std::move(route.links));
    rows.in.push_back(std::move(route.far));
  }
  return rows;
}

/// A lane for each port, as long as there are ranks to begin at.
std::size_t plain_lanes(const Cluster& c, std::size_t most) {
  if (c.hosts() == 1) return 1;
  return std::min({static_cast<std::size_t>(std::max(c.ports(), 1)),
                   static_cast<std::size_t>(c.ranks_of_a_host()), most});
}

/// GB/s of lanes that all carry the same.
double carried(const LaneWays& ways, const std::vector<double>& capacities, bool ports,
               const Orders& orders) {
  std::vector<double> used(capacities.size());
  for (const auto& order : orders) {
    LaneOrder lane;
    lane.gpus = order;
    if (ports) lane.port_in = lane.port_out = 0;
    for (const auto& [row, amount] : ways.load_of(lane)) {
      used[static_cast<std::size_t>(row)] += amount;
    }
  }
  double most = 0;
  for (std::size_t r = 0; r < used.size(); ++r) most = std::max(most, used[r] / capacities[r]);
  return static_cast<double>(orders.size()) / most;
}

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
  const RowsOfRanks rows = rows_of(c);
  LaneWays ways(rows, false);
  Orders offered;
  Budget program(kSearchSteps / 2), rings(kSearchSteps / 2);
  const auto offer_by = [&](Budget& budget) {
    return [&](const std::vector<double>& prices) {
      LaneWays::Priced ring = ways.cheapest_ring(prices, false, budget);
      offered.push_back(std::move(ring.order.gpus));
      return std::pair{static_cast<int>(offered.size()) - 1, std::move(ring.load)};
    };
  };
  const auto gbs = [&](const Orders& orders) {
    return carried(ways, rows.capacities, rows.ports > 0, orders);
  };
  const Orders known = turned(Orders(plain_lanes(c, most), plain_order(c)));
  const double bound = std::min(pack(rows.capacities, offer_by(program), kRounds, program).sum,
                                gbs({known.front()}) * static_cast<double>(most));
  const double of_known = gbs(known);
  if (of_known >= kGoodEnough * bound) return known;
  const EquallyPacked found =
      pack_equally(rows.capacities, offer_by(rings), static_cast<int>(most), kOffers, bound, rings);
  if (found.sum() <= of_known) return known;
  Orders orders;
  for (const int id : found.ids) orders.push_back(offered[static_cast<std::size_t>(id)]);
  return orders;
}

}  // namespace tutti::cluster

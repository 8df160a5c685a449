// See lanes.h. Prices lead to the orders: the packing (packing.h) prices the links, and the
// cheapest tour, or spanning tree (lane_ways.h), is the next order. So a full mesh ends with as
// many orders as it takes to fill each link, and a switch with one.
#include "collectives/model/lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "collectives/model/budget.h"
#include "collectives/model/equal_packing.h"
#include "collectives/model/lane_ways.h"
#include "collectives/model/packing.h"
#include "core/error.h"
#include "topology/nics.h"

namespace tutti {
namespace {

using topology::Graph;

constexpr int kRounds = 400;
// Rings that are looked at for each number of equal lanes: with twice as many little is gained.
constexpr int kOffers = 128, kLeastOffers = 8;
// Of a search for rings of equal share, what the linear program may spend.
constexpr double kOfLinearProgram = 0.5;

class LaneSearch {
 public:
  LaneSearch(const Graph& graph, int host, const LanesRequest& request)
      : g_(graph),
        request_(request),
        rows_(rows_of(graph, host, request)),
        ways_(rows_.rows, request.cross_rails),
        budget_(kSearchSteps) {
    at_most_ = ways_.most_of_any_gpu();
  }

  Lanes find() {
    Packed packed = any_amounts(budget_);
    if (packed.ways.empty() && std::isfinite(at_most_)) {
      // Of links that are too many for a linear program.
      packed = equal_amounts(request_.most_lanes, at_most_);
    }
    return judged(lanes_of(packed));
  }

  Lanes find_equal() {
    const int most = std::exchange(request_.most_lanes, std::numeric_limits<int>::max());
    Budget program(kOfLinearProgram * budget_.left());
    const double before = program.left();
    const Packed unequal = any_amounts(program);
    budget_.spend(before - program.left());
    // Without a limit there is nothing to share.
    const double target = std::isfinite(at_most_) ? at_most_ : unequal.sum;
    return judged(lanes_of(equal_amounts(most, target)));
  }

  Lanes evaluate(const std::vector<LaneOrder>& orders) {
    orders_ = orders;
    std::vector<Load> loads;
    for (const LaneOrder& o : orders_) loads.push_back(ways_.load_of_ring(o));
    const auto offer = [&](const std::vector<double>& prices) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < loads.size(); ++i) {
        if (ways_.price_of(loads[i], prices) < ways_.price_of(loads[best], prices) - 1e-12) {
          best = i;
        }
      }
      return std::pair{static_cast<int>(best), loads.empty() ? Load() : loads[best]};
    };
    return lanes_of(pack(capacities(), offer, kRounds, budget_));
  }

 private:
  static std::size_t size(int i) { return static_cast<std::size_t>(i); }
  const std::vector<double>& capacities() const { return rows_.rows.capacities; }

  std::pair<int, Load> keep(LaneWays::Priced way) {
    orders_.push_back(std::move(way.order));
    return {static_cast<int>(orders_.size()) - 1, std::move(way.load)};
  }

  /// By the linear program; what it proves lowers at_most_.
  Packed any_amounts(Budget& budget) {
    double at_least = 0;
    const auto offer = [&](const std::vector<double>& prices) {
      LaneWays::Priced way;
      if (request_.shape == LanesRequest::Shape::tree) {
        way = ways_.cheapest_tree(prices, budget);
      } else {
        way = ways_.cheapest_ring(prices, false, budget);
        // What a quick search does not find any more, a thorough one may.
        if (ways_.price_of(way.load, prices) > kEnoughPrice && way.at_least <= kEnoughPrice) {
          way = ways_.cheapest_ring(prices, true, budget);
        }
      }
      at_least = way.at_least;
      // No amounts are worth more than all links are, at prices at which no way costs less than
      // one.
      double worth = 0;
      for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * capacities()[i];
      if (worth > 0 && at_least > 0) at_most_ = std::min(at_most_, worth / at_least);
      return keep(std::move(way));
    };
    Packed packed = pack(capacities(), offer, kRounds, budget);
    stopped_ = budget.is_spent();
    if (packed.complete && at_least > kEnoughPrice && packed.sum < at_most_ / kEnoughPrice) {
      at_most_ = lanes_of(packed, false).bandwidth;
    }
    return packed;
  }

  Packed equal_amounts(int most, double bound) {
    const auto offer = [&](const std::vector<double>& prices) {
      return keep(request_.shape == LanesRequest::Shape::tree
                      ? ways_.cheapest_tree(prices, budget_)
                      : ways_.cheapest_ring(prices, false, budget_));
    };
    // A ring on a rail is looked for on each of them.
    const auto ports = rows_.rows.ports;
    const bool rails = ports > 0 && !request_.cross_rails;
    const int offers = rails ? std::max(kLeastOffers, kOffers / ports) : kOffers;
    const EquallyPacked packed = pack_equally(capacities(), offer, most, offers, bound, budget_);
    stopped_ = budget_.is_spent();
    Packed all;
    for (const int id : packed.ids) {
      all.ids.push_back(id);
      all.ways.push_back(ways_.load_of(orders_[size(id)]));
      all.amounts.push_back(packed.each);
    }
    return all;
  }

  Lanes judged(Lanes found) const {
    found.at_most = std::isfinite(at_most_) ? at_most_ : found.bandwidth;
    found.best = found.bandwidth > found.at_most * kEnoughPrice;
    found.stopped = stopped_ && !found.best;
    return found;
  }

  Lanes lanes_of(const Packed& packed, bool limited = true) const {
    Lanes found;
    found.used.resize(g_.links().size());
    std::vector<std::size_t> by_size(packed.amounts.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::ranges::stable_sort(by_size, [&](std::size_t a, std::size_t b) {
      return packed.amounts[a] > packed.amounts[b] + 1e-9;
    });
    for (const std::size_t w : by_size) {
      if (limited && static_cast<int>(found.lanes.size()) == request_.most_lanes) break;
      // Over ways that there are not: some of the GPUs do not reach each other.
      const bool apart = std::ranges::any_of(
          packed.ways[w], [&](const auto& l) { return rows_.links[size(l.first)] < 0; });
      if (apart) continue;
      LaneOrder lane = orders_[size(packed.ids[w])];
      lane.bandwidth = packed.amounts[w];
      found.bandwidth += lane.bandwidth;
      for (const auto& [row, amount] : packed.ways[w]) {
        const int link = rows_.links[size(row)];
        if (link >= 0) found.used[size(link)] += amount * lane.bandwidth;
      }
      for (int& gpu : lane.gpus) gpu = rows_.gpus[size(gpu)];
      if (lane.port_in >= 0) lane.port_in = rows_.ports[size(lane.port_in)];
      if (lane.port_out >= 0) lane.port_out = rows_.ports[size(lane.port_out)];
      found.lanes.push_back(std::move(lane));
    }
    for (std::size_t l = 0; l < found.used.size(); ++l) {
      if (found.used[l] > 0.999 * g_.link(static_cast<int>(l)).bandwidth) {
        found.full.push_back(static_cast<int>(l));
      }
    }
    return found;
  }

  const Graph& g_;
  LanesRequest request_;
  const RowsOfGraph rows_;
  LaneWays ways_;
  std::vector<LaneOrder> orders_;  // that were offered
  Budget budget_;
  double at_most_ = 0;    // GB/s: it is proved that no lanes carry more
  bool stopped_ = false;  // a budget was spent
};

}  // namespace

Lanes find_lanes(const Graph& graph, int host, const LanesRequest& request) {
  return LaneSearch(graph, host, request).find();
}

Lanes find_equal_rings(const Graph& graph, int host, const LanesRequest& request) {
  return LaneSearch(graph, host, request).find_equal();
}

double ring_bandwidth(const Graph& graph, const std::vector<std::vector<int>>& orders,
                      const std::vector<std::pair<int, int>>& ports) {
  LanesRequest request;
  request.several_hosts = !ports.empty();
  const std::vector<int> gpus = graph.gpus();
  const std::vector<int> known =
      ports.empty() ? std::vector<int>() : topology::data_ports(graph, 0);
  const auto index = [](const std::vector<int>& all, int node) {
    return static_cast<int>(std::ranges::find(all, node) - all.begin());
  };
  std::vector<LaneOrder> rings;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    LaneOrder& ring = rings.emplace_back();
    for (const int gpu : orders[i]) ring.gpus.push_back(index(gpus, gpu));
    if (ports.empty()) continue;
    ring.port_in = index(known, ports[i].first);
    ring.port_out = index(known, ports[i].second);
    const int last = std::max(ring.port_in, ring.port_out);
    if (last == static_cast<int>(known.size())) {
      throw Error(ErrorCode::invalid_argument, "a ring has a port that carries no data");
    }
  }
  return LaneSearch(graph, -1, request).evaluate(rings).bandwidth;
}

}  // namespace tutti

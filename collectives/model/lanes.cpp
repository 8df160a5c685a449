// See lanes.h. Which orders there are is a question of prices: the packing (packing.h) prices the
// links, and the cheapest tour (tour.h), or spanning tree, is the next order. So a full mesh ends
// with as many orders as it takes to fill each link, and a switch with one.
#include "collectives/model/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "collectives/model/equal_packing.h"
#include "collectives/model/packing.h"
#include "collectives/model/tour.h"
#include "core/error.h"
#include "topology/nics.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::LinkKind;
using topology::Path;

constexpr int kRounds = 400;
// Rings that are looked at for each number of equal lanes: with twice as many little is gained.
constexpr int kOffers = 128, kLeastOffers = 8;
// Exact tours of many cities, each some hundredths of a second.
constexpr int kThorough = 32;
// A ring that costs so much is not worth its price (packing.cpp).
constexpr double kEnough = 1 - 1e-6;
class LaneSearch {
 public:
  LaneSearch(const Graph& graph, int host, const LanesRequest& request)
      : g_(graph), request_(request), index_(graph.links().size(), -1) {
    for (const int gpu : g_.gpus()) {
      if (host < 0 || g_.node(gpu).host == host) gpus_.push_back(gpu);
    }
    if (gpus_.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} has no GPUs, so there are no rings of them", g_.source));
    }
    if (request.several_hosts) ports_ = topology::data_ports(g_, std::max(0, host));
    if (request.several_hosts && ports_.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} has no port to other hosts", g_.source));
    }
    for (const int gpu : gpus_) {
      const auto all = g_.paths(gpu);
      for (const int to : gpus_) between_.push_back(numbered(all[size(to)]));
      for (const int port : ports_) out_.push_back(numbered(all[size(port)]));
    }
    for (const int port : ports_) {
      const auto all = g_.paths(port);
      for (const int gpu : gpus_) in_.push_back(numbered(all[size(gpu)]));
    }
  }

  Lanes find() {
    const bool ring = request_.shape == LanesRequest::Shape::ring;
    const auto offer = [&](const std::vector<double>& prices) {
      LaneOrder order = ring ? cheapest_ring(prices, false) : cheapest_tree(prices);
      Load load = ring ? load_of_ring(order) : load_of_tree(order);
      // What a quick search does not find any more, a thorough one may.
      if (ring && price_of(load, prices) > kEnough && at_least_ <= kEnough) {
        order = cheapest_ring(prices, true);
        load = load_of_ring(order);
      }
      if (!ring) at_least_ = price_of(load, prices);
      orders_.push_back(order);
      return std::pair{static_cast<int>(orders_.size()) - 1, load};
    };
    Lanes found = lanes_of(pack(capacities_, offer, kRounds));
    found.best = found.best && at_least_ > kEnough;
    found.at_most = found.bandwidth;
    return found;
  }

  Lanes find_equal() {
    const int most = std::exchange(request_.most_lanes, std::numeric_limits<int>::max());
    const Lanes unequal = find();
    const auto offer = [&](const std::vector<double>& prices) {
      orders_.push_back(cheapest_ring(prices, false));
      return std::pair{static_cast<int>(orders_.size()) - 1, load_of_ring(orders_.back())};
    };
    // A ring on a rail is looked for on each of them.
    const bool rails = !ports_.empty() && !request_.cross_rails;
    const int offers = rails ? std::max(kLeastOffers, kOffers / ports()) : kOffers;
    const EquallyPacked packed = pack_equally(capacities_, offer, most, offers, unequal.bandwidth);
    Packed all;
    for (const int id : packed.ids) {
      all.ids.push_back(id);
      all.ways.push_back(load_of_ring(orders_[size(id)]));
      all.amounts.push_back(packed.each);
    }
    all.complete = unequal.best && packed.sum() > unequal.bandwidth * kEnough;
    Lanes found = lanes_of(all);
    found.at_most = unequal.bandwidth;
    return found;
  }

  Lanes evaluate(const std::vector<LaneOrder>& orders) {
    orders_ = orders;
    std::vector<Load> loads;
    for (const LaneOrder& o : orders_) loads.push_back(load_of_ring(o));
    const auto offer = [&](const std::vector<double>& prices) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < loads.size(); ++i) {
        if (price_of(loads[i], prices) < price_of(loads[best], prices) - 1e-12) best = i;
      }
      return std::pair{static_cast<int>(best), loads.empty() ? Load() : loads[best]};
    };
    return lanes_of(pack(capacities_, offer, kRounds));
  }

 private:
  static std::size_t size(int i) { return static_cast<std::size_t>(i); }
  int gpus() const { return static_cast<int>(gpus_.size()); }
  int ports() const { return static_cast<int>(ports_.size()); }

  /// A path as rows of the packing. No path is a row that nothing fits into.
  std::vector<int> numbered(const Path& path) {
    std::vector<int> rows;
    if (path.near == topology::Near::apart) {
      if (no_way_ < 0) {
        no_way_ = static_cast<int>(capacities_.size());
        capacities_.push_back(1e-9);
        links_.push_back(-1);
      }
      return {no_way_};
    }
    for (const int l : path.links) {
      // What is inside of a processor has no limit worth a row.
      if (g_.link(l).kind == LinkKind::inside) continue;
      int& row = index_[size(l)];
      if (row < 0) {
        row = static_cast<int>(capacities_.size());
        capacities_.push_back(g_.link(l).bandwidth);
        links_.push_back(l);
      }
      rows.push_back(row);
    }
    return rows;
  }

  static double price_of(const std::vector<int>& rows, const std::vector<double>& prices) {
    double sum = 0;
    for (const int r : rows) sum += prices[size(r)];
    return sum;
  }
  static double price_of(const Load& load, const std::vector<double>& prices) {
    double sum = 0;
    for (const auto& [row, amount] : load) sum += amount * prices[size(row)];
    return sum;
  }

  const std::vector<int>& path(int a, int b) const { return between_[size(a * gpus() + b)]; }
  const std::vector<int>& path_out(int gpu, int port) const {
    return out_[size(gpu * ports() + port)];
  }
  const std::vector<int>& path_in(int port, int gpu) const {
    return in_[size(port * gpus() + gpu)];
  }

  /// Sets at_least_, below which no ring's price is.
  LaneOrder cheapest_ring(const std::vector<double>& prices, bool exact) {
    at_least_ = std::numeric_limits<double>::infinity();
    if (ports_.empty()) return tour_by(prices, -1, exact);
    if (request_.cross_rails) return tour_by(prices, ports(), exact);
    LaneOrder best;
    double least = 0;
    for (int p = 0; p < ports(); ++p) {
      LaneOrder order = tour_by(prices, p, exact);
      const double price = price_of(load_of_ring(order), prices);
      if (p > 0 && price >= least - 1e-12) continue;
      least = price;
      best = std::move(order);
      if (exact && least <= kEnough) break;  // good enough for the next round
    }
    return best;
  }

  /// `rail`: the port by which it enters and leaves; all of them may be used for ports(), none for
  /// -1.
  LaneOrder tour_by(const std::vector<double>& prices, int rail, bool exact) {
    const int first = rail < 0 ? 0 : 1;  // city 0 is the network
    const int n = gpus() + first;
    const auto cheapest_port = [&](int gpu, bool in) {
      int best = rail;
      double least = 0;
      for (int p = 0; rail == ports() && p < ports(); ++p) {
        const double price = price_of(in ? path_in(p, gpu) : path_out(gpu, p), prices);
        if (p == 0 || price < least - 1e-12) least = price, best = p;
      }
      return best;
    };
    std::vector<double> costs(size(n * n));
    for (int i = 0; i < gpus(); ++i) {
      for (int j = 0; j < gpus(); ++j) {
        if (i != j) costs[size((i + first) * n + j + first)] = price_of(path(i, j), prices);
      }
      if (first == 0) continue;
      costs[size(i + 1)] = price_of(path_in(cheapest_port(i, true), i), prices);
      costs[size((i + 1) * n)] = price_of(path_out(i, cheapest_port(i, false)), prices);
    }
    LaneOrder order;
    CheapestTour tour = cheapest_tour(costs, n);
    if (exact && tour.at_least <= kEnough && thorough_ > 0) {
      --thorough_;
      tour = cheapest_tour(costs, n, true);
    }
    at_least_ = std::min(at_least_, tour.at_least);
    for (const int city : tour.order) {
      if (city >= first) order.gpus.push_back(city - first);
    }
    if (first == 1) {
      order.port_in = cheapest_port(order.gpus.front(), true);
      order.port_out = cheapest_port(order.gpus.back(), false);
    }
    return order;
  }

  /// Prim's algorithm. Of equals, what hangs on the latest one: chains, which no switch minds.
  LaneOrder cheapest_tree(const std::vector<double>& prices) const {
    LaneOrder order;
    order.gpus.push_back(0);
    order.parents.push_back(-1);
    std::vector<bool> in(gpus_.size());
    std::vector<double> least(gpus_.size(), std::numeric_limits<double>::infinity());
    std::vector<int> parent(gpus_.size());
    for (int last = 0;;) {
      in[size(last)] = true;
      int next = -1;
      for (int i = 0; i < gpus(); ++i) {
        if (in[size(i)]) continue;
        const double price = price_of(path(i, last), prices) + price_of(path(last, i), prices);
        if (price <= least[size(i)] + 1e-12) {
          least[size(i)] = price;
          parent[size(i)] = static_cast<int>(order.gpus.size()) - 1;
        }
        if (next < 0 || least[size(i)] < least[size(next)] - 1e-12) next = i;
      }
      if (next < 0) return order;
      order.gpus.push_back(next);
      order.parents.push_back(parent[size(next)]);
      last = next;
    }
  }

  static void add(std::map<int, double>& sums, const std::vector<int>& rows) {
    for (const int r : rows) sums[r] += 1;
  }

  Load load_of_ring(const LaneOrder& o) const {
    std::map<int, double> sums;
    for (std::size_t i = 1; i < o.gpus.size(); ++i) add(sums, path(o.gpus[i - 1], o.gpus[i]));
    if (o.port_in >= 0) {
      add(sums, path_in(o.port_in, o.gpus.front()));
      add(sums, path_out(o.gpus.back(), o.port_out));
    } else if (o.gpus.size() > 1) {
      add(sums, path(o.gpus.back(), o.gpus.front()));
    }
    return {sums.begin(), sums.end()};
  }

  /// Sums go up and results down: both directions of each link.
  Load load_of_tree(const LaneOrder& o) const {
    std::map<int, double> sums;
    for (std::size_t i = 1; i < o.gpus.size(); ++i) {
      const int parent = o.gpus[size(o.parents[i])];
      add(sums, path(o.gpus[i], parent));
      add(sums, path(parent, o.gpus[i]));
    }
    return {sums.begin(), sums.end()};
  }

  Lanes lanes_of(const Packed& packed) const {
    Lanes found;
    found.best = packed.complete;
    found.used.resize(g_.links().size());
    std::vector<std::size_t> by_size(packed.amounts.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::ranges::stable_sort(by_size, [&](std::size_t a, std::size_t b) {
      return packed.amounts[a] > packed.amounts[b] + 1e-9;
    });
    for (const std::size_t w : by_size) {
      if (static_cast<int>(found.lanes.size()) == request_.most_lanes) {
        found.best = false;
        break;
      }
      LaneOrder lane = orders_[size(packed.ids[w])];
      lane.bandwidth = packed.amounts[w];
      found.bandwidth += lane.bandwidth;
      for (const auto& [row, amount] : packed.ways[w]) {
        if (links_[size(row)] >= 0) {
          found.used[size(links_[size(row)])] += amount * lane.bandwidth;
        }
      }
      for (int& gpu : lane.gpus) gpu = gpus_[size(gpu)];
      if (lane.port_in >= 0) lane.port_in = ports_[size(lane.port_in)];
      if (lane.port_out >= 0) lane.port_out = ports_[size(lane.port_out)];
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
  std::vector<int> gpus_, ports_;
  std::vector<std::vector<int>> between_, out_, in_;  // rows of paths
  std::vector<double> capacities_;                    // by row
  std::vector<int> links_;                            // by row
  std::vector<int> index_;                            // row by link
  int no_way_ = -1;
  std::vector<LaneOrder> orders_;
  double at_least_ = 0;
  int thorough_ = kThorough;
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

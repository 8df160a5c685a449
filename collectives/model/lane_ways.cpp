// See lane_ways.h.
#include "collectives/model/lane_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "collectives/model/tour.h"
#include "core/error.h"
#include "topology/divided.h"
#include "topology/nics.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::LinkKind;
using topology::Path;

// Exact tours of many cities, each some hundredths of a second.
constexpr int kThorough = 32;
// All pairs of them are looked at.
constexpr std::size_t kMostGpus = 1024;

std::size_t row_index(int i) { return static_cast<std::size_t>(i); }

double price_of_rows(const std::vector<int>& rows, const std::vector<double>& prices) {
  double sum = 0;
  for (const int r : rows) sum += prices[row_index(r)];
  return sum;
}

void add_rows(std::map<int, double>& sums, const std::vector<int>& rows) {
  for (const int r : rows) sums[r] += 1;
}

}  // namespace

RowsOfGraph rows_of(const Graph& graph, int host, const LanesRequest& request) {
  RowsOfGraph found;
  RowsOfRanks& r = found.rows;
  for (const int gpu : graph.gpus()) {
    if (host < 0 || graph.node(gpu).host == host) found.gpus.push_back(gpu);
  }
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} {}", graph.source, what));
  };
  if (found.gpus.empty()) refuse("has no GPUs, so there are no rings of them");
  if (found.gpus.size() > kMostGpus) {
    refuse(fmt::format("has {} GPUs; rings and trees are looked for among {} at most",
                       found.gpus.size(), kMostGpus));
  }
  if (request.several_hosts) found.ports = topology::data_ports(graph, std::max(0, host));
  if (request.several_hosts && found.ports.empty()) refuse("has no port to other hosts");

  std::vector<int> row_of_link(graph.links().size(), -1);
  int no_way = -1;
  const auto new_row = [&](double capacity, int link) {
    r.capacities.push_back(capacity);
    found.links.push_back(link);
    return static_cast<int>(found.links.size()) - 1;
  };
  const auto numbered = [&](const Path& path) {
    if (path.near == topology::Near::apart) {  // a row that nothing fits into
      if (no_way < 0) no_way = new_row(1e-9, -1);
      return std::vector{no_way};
    }
    std::vector<int> rows;
    for (const int l : path.links) {
      // What is inside of a processor has no limit worth a row.
      if (graph.link(l).kind == LinkKind::inside) continue;
      int& row = row_of_link[row_index(l)];
      if (row < 0) row = new_row(graph.link(l).bandwidth, l);
      rows.push_back(row);
    }
    return rows;
  };
  for (const int gpu : found.gpus) {
    const auto all = graph.paths(gpu);
    for (const int to : found.gpus) r.between.push_back(numbered(all[row_index(to)]));
    for (const int port : found.ports) r.out.push_back(numbered(all[row_index(port)]));
  }
  for (const int port : found.ports) {
    const auto all = graph.paths(port);
    for (const int gpu : found.gpus) r.in.push_back(numbered(all[row_index(gpu)]));
  }
  r.ranks = static_cast<int>(found.gpus.size());
  r.ports = static_cast<int>(found.ports.size());
  r.devices = topology::by_device(graph, found.gpus);
  return found;
}

LaneWays::LaneWays(const RowsOfRanks& rows, bool cross_rails)
    : rows_(rows), cross_rails_(cross_rails), thorough_(kThorough) {
  for (const auto& path : rows.between) steps_of_costs_ += 1 + static_cast<double>(path.size());
}

double LaneWays::price_of(const Load& load, const std::vector<double>& prices) const {
  double sum = 0;
  for (const auto& [row, amount] : load) sum += amount * prices[row_index(row)];
  return sum;
}

const std::vector<int>& LaneWays::path(int a, int b) const {
  return rows_.between[row_index(a * rows_.ranks + b)];
}
const std::vector<int>& LaneWays::path_out(int gpu, int port) const {
  return rows_.out[row_index(gpu * rows_.ports + port)];
}
const std::vector<int>& LaneWays::path_in(int port, int gpu) const {
  return rows_.in[row_index(port * rows_.ranks + gpu)];
}

LaneWays::Priced LaneWays::cheapest_ring(const std::vector<double>& prices, bool exact,
                                         Budget& budget) {
  Priced best;
  best.at_least = std::numeric_limits<double>::infinity();
  const bool rails = rows_.ports > 0 && !cross_rails_;
  const int first = rows_.ports == 0 ? -1 : rails ? 0 : rows_.ports;
  const int last = rails ? rows_.ports - 1 : first;
  double least = 0;
  for (int rail = first; rail <= last; ++rail) {
    if (rail > first && budget.is_spent()) {
      best.at_least = 0;
      break;
    }
    LaneOrder order = tour_by(prices, rail, exact, best.at_least, budget);
    Load load = load_of_ring(order);
    const double price = price_of(load, prices);
    if (rail > first && price >= least - 1e-12) continue;
    least = price;
    best.order = std::move(order);
    best.load = std::move(load);
    if (exact && least <= kEnoughPrice && rail < last) {
      best.at_least = 0;  // of the other rails; good enough for the next round
      break;
    }
  }
  return best;
}

/// `rail`: the port by which it enters and leaves; all of them may be used for the number of ports,
/// none for -1. Lowers `at_least` to what no such ring's price is below.
LaneOrder LaneWays::tour_by(const std::vector<double>& prices, int rail, bool exact,
                            double& at_least, Budget& budget) {
  const int first = rail < 0 ? 0 : 1;  // city 0 is the network
  const int n = rows_.ranks + first;
  const auto cheapest_port = [&](int gpu, bool in) {
    int best = rail;
    double least = 0;
    for (int p = 0; rail == rows_.ports && p < rows_.ports; ++p) {
      const double price = price_of_rows(in ? path_in(p, gpu) : path_out(gpu, p), prices);
      if (p == 0 || price < least - 1e-12) least = price, best = p;
    }
    return best;
  };
  std::vector<double> costs(row_index(n) * row_index(n));
  for (int i = 0; i < rows_.ranks; ++i) {
    for (int j = 0; j < rows_.ranks; ++j) {
      if (i != j) costs[row_index((i + first) * n + j + first)] = price_of_rows(path(i, j), prices);
    }
    if (first == 0) continue;
    costs[row_index(i + 1)] = price_of_rows(path_in(cheapest_port(i, true), i), prices);
    costs[row_index((i + 1) * n)] = price_of_rows(path_out(i, cheapest_port(i, false)), prices);
  }
  budget.spend(steps_of_costs_);
  std::vector<std::vector<int>> groups;
  if (first == 1) groups.push_back({0});
  for (const auto& parts : rows_.devices) {
    auto& cities = groups.emplace_back();
    for (const int part : parts) cities.push_back(part + first);
  }
  LaneOrder order;
  CheapestTour tour = cheapest_tour(costs, n, groups);
  budget.spend(tour.steps);
  if (exact && tour.at_least <= kEnoughPrice && thorough_ > 0) {
    --thorough_;
    tour = cheapest_tour(costs, n, groups, true);
    budget.spend(tour.steps);
  }
  at_least = std::min(at_least, tour.at_least);
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
LaneWays::Priced LaneWays::cheapest_tree(const std::vector<double>& prices, Budget& budget) const {
  Priced found;
  LaneOrder& order = found.order;
  order.gpus.push_back(0);
  order.parents.push_back(-1);
  std::vector<bool> in(row_index(rows_.ranks));
  std::vector<double> least(row_index(rows_.ranks), std::numeric_limits<double>::infinity());
  std::vector<int> parent(row_index(rows_.ranks));
  for (int last = 0;;) {
    in[row_index(last)] = true;
    int next = -1;
    for (int i = 0; i < rows_.ranks; ++i) {
      if (in[row_index(i)]) continue;
      const double price =
          price_of_rows(path(i, last), prices) + price_of_rows(path(last, i), prices);
      if (price <= least[row_index(i)] + 1e-12) {
        least[row_index(i)] = price;
        parent[row_index(i)] = static_cast<int>(order.gpus.size()) - 1;
      }
      if (next < 0 || least[row_index(i)] < least[row_index(next)] - 1e-12) next = i;
    }
    if (next < 0) break;
    order.gpus.push_back(next);
    order.parents.push_back(parent[row_index(next)]);
    last = next;
  }
  budget.spend(2 * steps_of_costs_);
  found.load = load_of_tree(order);
  found.at_least = price_of(found.load, prices);
  return found;
}

Load LaneWays::load_of_ring(const LaneOrder& o) const {
  std::map<int, double> sums;
  for (std::size_t i = 1; i < o.gpus.size(); ++i) {
    add_rows(sums, path(o.gpus[i - 1], o.gpus[i]));
  }
  if (o.port_in >= 0) {
    add_rows(sums, path_in(o.port_in, o.gpus.front()));
    add_rows(sums, path_out(o.gpus.back(), o.port_out));
  } else if (o.gpus.size() > 1) {
    add_rows(sums, path(o.gpus.back(), o.gpus.front()));
  }
  return {sums.begin(), sums.end()};
}

/// Sums go up and results down: both directions of each link.
Load LaneWays::load_of_tree(const LaneOrder& o) const {
  std::map<int, double> sums;
  for (std::size_t i = 1; i < o.gpus.size(); ++i) {
    const int parent = o.gpus[row_index(o.parents[i])];
    add_rows(sums, path(o.gpus[i], parent));
    add_rows(sums, path(parent, o.gpus[i]));
  }
  return {sums.begin(), sums.end()};
}

Load LaneWays::load_of(const LaneOrder& o) const {
  return o.parents.empty() ? load_of_ring(o) : load_of_tree(o);
}

double LaneWays::most_of_any_gpu() const {
  double most = std::numeric_limits<double>::infinity();
  for (int gpu = 0; gpu < rows_.ranks; ++gpu) {
    std::set<int> out, in;  // the links next to it
    bool limited = true;
    const auto add = [&](const std::vector<int>& there, const std::vector<int>& back) {
      limited = limited && !there.empty() && !back.empty();
      if (!limited) return;
      out.insert(there.front());
      in.insert(back.back());
    };
    for (int other = 0; other < rows_.ranks; ++other) {
      if (other != gpu) add(path(gpu, other), path(other, gpu));
    }
    for (int p = 0; p < rows_.ports; ++p) add(path_out(gpu, p), path_in(p, gpu));
    if (!limited || out.empty()) continue;
    double leaves = 0, arrives = 0;
    for (const int row : out) leaves += rows_.capacities[row_index(row)];
    for (const int row : in) arrives += rows_.capacities[row_index(row)];
    most = std::min({most, leaves, arrives});
  }
  return most;
}

}  // namespace tutti

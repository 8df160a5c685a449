// See plan_trial.h.
#include "tests/collectives/model/plan_trial.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "collectives/cluster/parts.h"
#include "core/error.h"

namespace tutti::test {
namespace {

using namespace cluster;

using Order = std::vector<int>;
using Orders = std::vector<Order>;

constexpr int kMostOrders = 6;  // of those that the graph's search found, alone

Order rotated(Order order, std::size_t by) {
  std::ranges::rotate(order, order.begin() + static_cast<std::ptrdiff_t>(by % order.size()));
  return order;
}

/// Single orders of a host's ranks.
Orders orders_of(const Cluster& c) {
  Orders all;
  const auto add = [&](const Order& order) {
    if (std::ranges::find(all, order) == all.end()) all.push_back(order);
  };
  Order plain(static_cast<std::size_t>(c.ranks_of_a_host()));
  std::iota(plain.begin(), plain.end(), 0);
  add(plain);
  for (const Order& order : c.orders()) {
    if (static_cast<int>(all.size()) < kMostOrders) add(order);
  }
  if (plain.size() <= 4) {
    Order next = plain;
    while (std::ranges::next_permutation(next).found) add(next);
  } else {
    std::mt19937 random(7);
    for (int i = 0; i < 3; ++i) {
      Order other = plain;
      std::ranges::shuffle(other, random);
      add(other);
    }
  }
  return all;
}

/// For plans with lanes: as many orders as lanes.
std::set<Orders> layouts_of(const Cluster& c, bool lanes) {
  std::set<Orders> all;
  const Orders single = orders_of(c);
  for (const Order& order : single) all.insert({order});
  if (!lanes) return all;
  all.insert(c.orders());
  for (const std::size_t count : {2U, 4U, 8U, 16U}) {
    Orders found, turned, mixed, same;
    for (std::size_t l = 0; l < count; ++l) {
      found.push_back(c.orders()[l % c.orders().size()]);
      turned.push_back(rotated(single.front(), l * single.front().size() / count));
      mixed.push_back(single[l % single.size()]);
      same.push_back(c.orders().front());
    }
    for (const Orders& o : {found, turned, mixed, same}) all.insert(o);
  }
  return all;
}

}  // namespace

Trial try_all(const Cluster& c, const Workload& call, const Prediction& start) {
  Trial trial{.best = start};
  const auto bytes = static_cast<double>(call.bytes);
  const double block = block_of(call.collective, bytes, c.ranks());
  for (const Algorithm& a : algorithms()) {
    if (a.collective != call.collective || a.windows) continue;
    for (const Orders& orders : layouts_of(c, a.lanes)) {
      const Parts parts(c, a, orders);
      const PartOf part = [&](int rank) { return parts(rank); };
      double least = 0;
      try {
        least = least_time(c, part, block);
      } catch (const Error&) {
        break;  // not for so many ranks
      }
      for (const GpuProtocol p : kGpuProtocols) {
        if (!c.possible(p)) continue;
        const double call_us = c.constants().call(p);
        double bound = least / c.constants().data(p) + call_us;
        for (int tiles = 1; tiles <= kMostTiles; tiles *= 2) {
          if (tiles > 1 && bytes / tiles < kLeastTile) break;
          if (tiles == 2 && bound < trial.best.us()) {
            // Messages one after the other, as if all links were free: no tiles help against that.
            bound = std::max(bound, time_of(c, part, 1e-3, p, 1) + call_us);
          }
          if (bound >= trial.best.us()) {
            ++trial.hopeless;
            continue;
          }
          ++trial.tried;
          const double us = time_of(c, part, block, p, tiles) + call_us;
          if (us >= trial.best.us()) continue;
          trial.best.algorithm = &a;
          trial.best.ns = 1000 * us;
          trial.best.protocol = p;
          trial.best.tiles = static_cast<std::size_t>(tiles);
          trial.best.orders = orders;
        }
      }
    }
  }
  return trial;
}

}  // namespace tutti::test

// See choose.h.
#include "collectives/cluster/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collectives/cluster/parts.h"
#include "collectives/model/choose.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Orders that make few lanes are repeated up to so many: each lane waits for its messages by
/// itself, so more messages are under way.
constexpr std::size_t kManyLanes = 16;

/// For hosts with so few ranks, more layouts are tried: the first rank is a larger part of the
/// host.
constexpr std::size_t kFew = 4;

/// An order that the graph carries, and ranks as they are numbered; all that it carries, in as many
/// lanes, in more, and turned. Those that are simulated soon come first.
std::vector<Orders> layouts_of(const Cluster& c, bool lanes) {
  std::vector<Orders> all;
  const auto add = [&](const Orders& orders) {
    if (std::ranges::find(all, orders) == all.end()) all.push_back(orders);
  };
  const std::vector<int> plain = plain_order(c);
  add({c.orders().front()});
  add({plain});
  const bool few = plain.size() <= kFew;
  if (few) {
    for (const auto& order : turned(Orders(plain.size(), plain))) add({order});
  }
  if (!lanes) return all;
  add(c.orders());
  Orders many;
  while (many.size() + c.orders().size() <= kManyLanes) {
    many.insert(many.end(), c.orders().begin(), c.orders().end());
  }
  add(many);
  add(turned(many));
  if (few) {
    add(Orders(kManyLanes, plain));
    add(turned(Orders(kManyLanes, plain)));
  }
  return all;
}

class Choice {
 public:
  Choice(const Cluster& c, const Workload& workload)
      : c_(c),
        call_(workload),
        bytes_(static_cast<double>(workload.bytes)),
        block_(block_of(workload.collective, bytes_, c.ranks())) {}

  Prediction find() {
    best_ = fastest(call_.collective, 1, [&](const Algorithm& a, const Prediction& so_far) {
      best_ = so_far;
      if (!a.windows && !a.compressed) look_at(a);
      return best_;
    });
    if (!best_.possible) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("no plan without windows does {}", name(call_.collective)));
    }
    // Over links of their own GPUs are all alike, or as good as that.
    if (best_.orders.size() == 1 && !c_.all_linked()) look_at_orders();
    look_between();  // for what suits one order may not suit another
    return best_;
  }

 private:
  double try_one(const Algorithm& a, const Orders& orders, const PartOf& part, GpuProtocol p,
                 int tiles) {
    const double us = time_of(c_, part, block_, p, tiles) + c_.constants().call(p);
    if (us >= best_us()) return us;
    best_.algorithm = &a;
    best_.possible = true;
    best_.ns = 1000 * us;
    best_.tiles = static_cast<std::size_t>(tiles);
    best_.protocol = p;
    best_.orders = orders;
    return us;
  }

  double best_us() const {
    return best_.possible ? best_.us() : std::numeric_limits<double>::infinity();
  }

  bool possible(int tiles) const { return tiles == 1 || bytes_ / tiles >= kLeastTile; }

  void look_at(const Algorithm& a) {
    try {
      for (const Orders& orders : layouts_of(c_, a.lanes)) look_at(a, orders);
      if (a.lanes) look_at_crowd(a);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::invalid_argument) throw;  // else: not for so many ranks
    }
  }

  void look_at(const Algorithm& a, const Orders& orders) {
    const Parts parts(c_, a, orders);
    const PartOf part = [&](int rank) { return parts(rank); };
    if (orders.size() > 1 && is_a_crowd(a, part(0), orders.size())) return;
    try_protocols(a, orders, part, kMostTiles);
  }

  void try_protocols(const Algorithm& a, const Orders& orders, const PartOf& part, int most_tiles) {
    const double least = least_time(c_, part, block_);
    for (const GpuProtocol p : kGpuProtocols) {
      if (!c_.possible(p)) continue;
      if (least / c_.constants().data(p) + c_.constants().call(p) >= best_us()) continue;
      double before = std::numeric_limits<double>::infinity();
      for (int tiles = 1; tiles <= most_tiles && possible(tiles); tiles *= 4) {
        const double us = try_one(a, orders, part, p, tiles);
        // With more tiles it gets better and then worse.
        if (us >= before) break;
        before = us;
      }
    }
  }

  /// A crowd's messages gain by lanes that leave by all ports, and by more under way: tried in a
  /// few lanes, whole, and unless it takes seconds to simulate.
  void look_at_crowd(const Algorithm& a) {
    const Orders orders = turned(Orders(kCrowdLanes, plain_order(c_)));
    const Parts parts(c_, a, orders);
    const PartOf part = [&](int rank) { return parts(rank); };
    const RankPlan plan = parts(0);
    const std::size_t operands = plan.operands.size() * static_cast<std::size_t>(c_.ranks());
    if (!is_a_crowd(a, plan, kCrowdLanes) || operands > kMostOperands) return;
    try_protocols(a, orders, part, 1);
  }

  /// Plans that send to everybody at once take long to simulate in lanes.
  bool is_a_crowd(const Algorithm& a, const RankPlan& plan, std::size_t lanes) const {
    PlanRequest request;
    request.collective = call_.collective;
    request.ranks = c_.ranks();
    const auto hops = static_cast<std::size_t>(std::max(1, a.hops(request).across));
    return plan.operands.size() > std::max<std::size_t>(kCrowd, 8 * lanes * hops);
  }

  /// As many tiles as lie between those that were tried.
  void look_between() {
    const Prediction found = best_;
    const Algorithm& a = *found.algorithm;
    const Parts parts(c_, a, found.orders);
    const PartOf part = [&](int rank) { return parts(rank); };
    const int known = static_cast<int>(found.tiles);
    for (const int tiles : {known / 2, known * 2}) {
      if (tiles < 1 || tiles > kMostTiles || !possible(tiles)) continue;
      try_one(a, found.orders, part, found.protocol, tiles);
    }
  }

  /// Plans with partners that are no neighbours may suit another order than rings do: two ranks
  /// change places as long as that is worth it.
  void look_at_orders() {
    const Algorithm& a = *best_.algorithm;
    const std::size_t k = best_.orders.front().size();
    int left = kSwaps;
    for (std::size_t i = 0; i + 1 < k; ++i) {
      for (std::size_t j = i + 1; j < k && left > 0; ++j, --left) {
        Orders orders = best_.orders;
        std::swap(orders.front()[i], orders.front()[j]);
        const Parts parts(c_, a, orders);
        try_one(
            a, orders, [&](int rank) { return parts(rank); }, best_.protocol,
            static_cast<int>(best_.tiles));
      }
    }
  }

  static constexpr int kSwaps = 28;  // all pairs of eight
  static constexpr std::size_t kCrowdLanes = 8;
  static constexpr std::size_t kCrowd = 1024;            // operands of a rank, in all lanes
  static constexpr std::size_t kMostOperands = 1 << 18;  // of all ranks: about a second

  const Cluster& c_;
  const Workload& call_;
  const double bytes_, block_;
  Prediction best_;
};

}  // namespace

Prediction choose(const Cluster& c, const Workload& workload) { return Choice(c, workload).find(); }

}  // namespace tutti::cluster

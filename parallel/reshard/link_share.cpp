#include "parallel/reshard/link_share.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti::parallel::reshard {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max() / 4;

/// Dinic's maximum flow: shortest paths in layers, as many as there are, then new layers.
class Flow {
 public:
  explicit Flow(std::size_t nodes) : edges_of_(nodes), level_(nodes), next_(nodes) {}

  /// Returns the edge's number.
  std::size_t add(std::size_t from, std::size_t to, std::uint64_t room) {
    edges_of_[from].push_back(edges_.size());
    edges_.push_back({to, room});
    edges_of_[to].push_back(edges_.size());
    edges_.push_back({from, 0});
    return edges_.size() - 2;
  }
  std::uint64_t through(std::size_t edge) const { return edges_[edge + 1].room; }

  std::uint64_t run(std::size_t from, std::size_t to) {
    std::uint64_t flow = 0;
    while (find_levels(from, to)) {
      std::ranges::fill(next_, 0);
      while (const std::uint64_t more = push(from, to, kNoLimit)) flow += more;
    }
    return flow;
  }

 private:
  struct Edge {
    std::size_t to;
    std::uint64_t room;
  };

  bool find_levels(std::size_t from, std::size_t to) {
    std::ranges::fill(level_, -1);
    level_[from] = 0;
    std::vector<std::size_t> queue{from};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const std::size_t e : edges_of_[queue[i]]) {
        if (edges_[e].room == 0 || level_[edges_[e].to] >= 0) continue;
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
    }
    return level_[to] >= 0;
  }

  /// Paths have few nodes: a source, a demand, its relays, a host, a sink, and detours over hosts.
  std::uint64_t push(std::size_t node, std::size_t to, std::uint64_t most) {
    if (node == to) return most;
    for (std::size_t& i = next_[node]; i < edges_of_[node].size(); ++i) {
      const std::size_t e = edges_of_[node][i];
      if (edges_[e].room == 0 || level_[edges_[e].to] != level_[node] + 1) continue;
      const std::uint64_t pushed = push(edges_[e].to, to, std::min(most, edges_[e].room));
      if (pushed == 0) continue;
      edges_[e].room -= pushed;
      edges_[e ^ 1].room += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<Edge> edges_;  // each with its reverse behind it
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;  // edge to try, by node
};

/// The shares where no host sends more than `limit`; none: there are no such shares.
std::vector<DemandShare> shares_within(std::span<const Demand> demands, int hosts, bool relays,
                                       std::uint64_t limit) {
  // Nodes: the source, the sink, hosts, then two for each demand.
  const auto count = static_cast<std::size_t>(hosts);
  constexpr std::size_t kSource = 0, kSink = 1, kHosts = 2;
  Flow flow(kHosts + count + 2 * demands.size());
  const auto host = [&](int h) { return kHosts + static_cast<std::size_t>(h); };
  for (int h = 0; h < hosts; ++h) flow.add(host(h), kSink, limit);
  std::uint64_t wanted = 0;
  std::vector<std::size_t> first;  // edge to a host, by demand
  for (std::size_t d = 0; d < demands.size(); ++d) {
    const Demand& demand = demands[d];
    const std::size_t node = kHosts + count + 2 * d, relay = node + 1;
    const std::uint64_t all = demand.bytes * demand.needers.size();
    wanted += all;
    flow.add(kSource, node, all);
    flow.add(node, relay, relays ? all - demand.bytes : 0);
    std::size_t at = 0;
    for (const int h : demand.holders) {
      const std::size_t edge = flow.add(node, host(h), kNoLimit);
      if (at++ == 0) first.push_back(edge);
    }
    for (const int h : demand.needers) flow.add(relay, host(h), demand.bytes);
  }
  if (flow.run(kSource, kSink) != wanted) return {};
  std::vector<DemandShare> shares(demands.size());
  for (std::size_t d = 0; d < demands.size(); ++d) {
    std::size_t edge = first[d];
    for (std::size_t i = 0; i < demands[d].holders.size(); ++i, edge += 2) {
      shares[d].holders.push_back(flow.through(edge));
    }
    for (std::size_t i = 0; i < demands[d].needers.size(); ++i, edge += 2) {
      shares[d].relays.push_back(flow.through(edge));
    }
  }
  return shares;
}

struct Least {
  std::uint64_t limit = 0;
  std::vector<DemandShare> shares;
};

/// `received`: the most that a host receives. That much a link carries anyway, so it is tried
/// first.
Least least_limit(std::span<const Demand> demands, int hosts, bool relays, std::uint64_t received) {
  std::uint64_t high = 0;
  for (const Demand& d : demands) high += d.bytes * d.needers.size();
  std::uint64_t low = high / static_cast<std::uint64_t>(hosts);  // the average
  Least best;
  for (const std::uint64_t limit : {low, received, high}) {
    best = {limit, shares_within(demands, hosts, relays, limit)};
    if (!best.shares.empty()) break;
    low = limit;
  }
  high = best.limit;
  while (high > low && high - low > std::max<std::uint64_t>(high / 200, 1)) {
    const std::uint64_t middle = low + (high - low) / 2;
    auto shares = shares_within(demands, hosts, relays, middle);
    if (shares.empty()) {
      low = middle;
    } else {
      best = {middle, std::move(shares)};
      high = middle;
    }
  }
  return best;
}

}  // namespace

std::vector<DemandShare> share_links(std::span<const Demand> demands, int hosts) {
  if (demands.empty()) return {};
  std::vector<std::uint64_t> received(static_cast<std::size_t>(hosts));
  for (const Demand& d : demands) {
    for (const int h : d.needers) received[static_cast<std::size_t>(h)] += d.bytes;
  }
  const std::uint64_t most = std::ranges::max(received);
  Least direct = least_limit(demands, hosts, false, most);
  if (direct.limit <= most) return std::move(direct.shares);
  Least relayed = least_limit(demands, hosts, true, most);
  return std::move(relayed.limit < direct.limit ? relayed.shares : direct.shares);
}

}  // namespace tutti::parallel::reshard

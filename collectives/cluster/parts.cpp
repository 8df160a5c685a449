// See parts.h.
#include "collectives/cluster/parts.h"

#include <algorithm>
#include <cmath>

namespace tutti::cluster {

Parts::Parts(const Cluster& c, const Algorithm& algorithm, const Orders& orders)
    : algorithm_(algorithm) {
  const int k = c.ranks_of_a_host();
  request_.collective = algorithm.collective;
  request_.ranks = c.ranks();
  request_.scales = false;
  if (c.hosts() > 1 && k > 1) request_.group = k;
  if (c.ranks() == 1) return;
  for (const auto& order : orders) {
    if (!algorithm_.lanes && !lanes_.empty()) break;
    std::vector<int> ranks;
    for (int h = 0; h < c.hosts(); ++h) {
      for (const int i : order) ranks.push_back(h * k + i);
    }
    lanes_.push_back(Domains::in_order(ranks));
  }
}

RankPlan Parts::operator()(int rank) const {
  if (lanes_.empty()) return algorithm_.generate(request_, rank);
  if (lanes_.size() == 1) return generate(algorithm_, request_, rank, lanes_.front());
  return generate(algorithm_, request_, rank, lanes_);
}

double block_of(Collective collective, double bytes, int ranks) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return bytes;
    default:
      return bytes / ranks;
  }
}

namespace {

/// Tiles that are simulated together at most: of more, the pace of the last ones goes on.
constexpr int kSimulatedTiles = 8;
/// Of chains, which are long before they are full: then their tiles leave no gaps.
constexpr int kTilesOfChains = 32;

/// Whether each rank passes on what it gets, and does nothing else.
bool is_chain(const RankPlan& plan) {
  return std::ranges::all_of(plan.lanes, [](const auto& lane) { return lane.size() <= 1; });
}

}  // namespace

double time_of(const Cluster& c, const PartOf& part, double block, GpuProtocol protocol, int tiles,
               bool at_once) {
  const bool chain = tiles > kSimulatedTiles && is_chain(part(0)) && is_chain(part(c.ranks() / 2));
  const int together = chain ? kTilesOfChains : kSimulatedTiles;
  SimulateOptions o;
  o.at_once = at_once;
  o.protocol = protocol;
  o.tiles = std::min(tiles, together);
  o.block_bytes = block * o.tiles / tiles;
  const Simulated first = simulate(c, part, o);
  // A protocol that does not go some way never ends there.
  if (tiles <= together || !std::isfinite(first.us)) return first.us;
  double pace = 0;
  if (!chain) {
    const int fewer = together / 2;
    o.block_bytes = block * fewer / tiles;
    o.tiles = fewer;
    pace = (first.us - simulate(c, part, o).us) / fewer;
  }
  // So few may leave gaps on the links, which all of them would fill; but none overfills one.
  for (std::size_t l = 0; l < first.moved.size(); ++l) {
    pace = std::max(pace, first.moved[l] / (first.capacities[l] * 1000) / together);
  }
  return first.us + pace * (tiles - together);
}

double least_time(const Cluster& c, const PartOf& part, double block) {
  SimulateOptions o;
  o.block_bytes = block;
  const Scenario s = scenario_of(c, part, o).scenario;
  std::vector<double> moved(s.rates.size());
  for (const Scenario::Step& step : s.steps) {
    for (std::uint32_t i = 0; i < step.sends; ++i) {
      const int route = s.ends[step.first + step.sources + i].route;
      for (const int l : s.routes[static_cast<std::size_t>(route)].links) {
        moved[static_cast<std::size_t>(l)] += s.costs[step.cost].bytes;
      }
    }
  }
  double us = 0;
  for (std::size_t l = 0; l < moved.size(); ++l) us = std::max(us, moved[l] / s.rates[l]);
  return us;
}

}  // namespace tutti::cluster

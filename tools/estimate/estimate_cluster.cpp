#include "tools/estimate/estimate_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/cluster/choose.h"
#include "core/counted.h"
#include "tools/terminal.h"

namespace tutti {

using parallel::estimate::AxisPlace;
using parallel::estimate::CallCost;

namespace {

constexpr int kHosts = 2;
constexpr double kShort = 64 << 10, kLong = 32 << 20;  // bytes

/// What a rank sends, of `bytes` of all ranks.
double sent_of(Collective collective, double bytes, int ranks) {
  const double once = bytes * (ranks - 1) / ranks;
  return collective == Collective::all_reduce ? 2 * once : once;
}

}  // namespace

CallCost ClusterCosts::operator()(Collective collective, const AxisPlace& at) {
  // A message to the neighbour in a pipeline: as a gather of two ranks; each sends a half.
  const bool message = collective == Collective::send_recv;
  AxisPlace place = at;
  if (message) place.in_host = at.in_host > 1 ? 2 : 1, place.hosts = at.in_host > 1 ? 1 : 2;
  const Collective as = message ? Collective::all_gather : collective;
  if (place.in_host * place.hosts == 1) return {0, 1e9};
  const int hosts = std::min(place.hosts, kHosts);
  const auto [found, is_new] = known_.try_emplace({as, place.in_host, hosts});
  if (is_new) found->second = predicted(as, place.in_host, hosts);
  CallCost cost = found->second.cost;
  if (place.hosts > 1) {
    cost.gb_per_s = std::min(cost.gb_per_s, found->second.ports / place.sharing);
    cost.latency_us *= std::log2(2.0 * place.hosts) / std::log2(2.0 * hosts);
  }
  return cost;
}

ClusterCosts::Alone ClusterCosts::predicted(Collective collective, int in_host, int hosts) const {
  show_progress(fmt::format("{} of {} ranks on {}", name(collective), in_host * hosts,
                            counted(hosts, "host")));
  const cluster::Cluster c(setup_.host, hosts, setup_.network, constants_, in_host);
  const auto us = [&](double bytes) {
    return cluster::choose(c, {collective, static_cast<std::size_t>(bytes), DataType::uint8}).us();
  };
  const double first = us(kShort), second = us(kLong);
  const double sent = sent_of(collective, kLong - kShort, c.ranks());
  Alone alone;
  alone.cost.gb_per_s = sent / std::max(second - first, 1e-3) / 1000;
  alone.cost.latency_us =
      std::max(1.0, first - sent_of(collective, kShort, c.ranks()) / alone.cost.gb_per_s / 1000);
  if (hosts > 1) alone.ports = c.port_bandwidth();
  show_progress("");
  return alone;
}

}  // namespace tutti

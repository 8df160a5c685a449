// See expect.h.
#include "tools/check/expect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "comm/geometry.h"
#include "core/error.h"
#include "core/host.h"
#include "tools/topology_source.h"

namespace tutti::check {
namespace {

/// Of the line rate, that data in TCP's segments get.
constexpr double kOfTcp = 0.94;

double fastest_port() {
  std::int64_t fastest = 0;  // Mbit/s
  const topology::Records records = topology_records("");
  for (const topology::DeviceRecord& device : records.devices) {
    for (const topology::NetRecord& net : device.nets) {
      if (net.up) fastest = std::max(fastest, net.speed.value_or(0));
    }
  }
  return static_cast<double>(fastest) / 1000;
}

}  // namespace

Expectation::Expectation(Collective collective, const std::vector<int>& ranks_of)
    : collective_(collective), chooser_(platform_of(ranks_of)) {}

Platform Expectation::platform_of(const std::vector<int>& ranks_of) {
  UsedMachine used = used_machine();
  origin_ = used.origin;
  calibrated_ = used.origin.starts_with("calibrated");
  std::vector<int> host_of;
  for (std::size_t h = 0; h < ranks_of.size(); ++h) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(ranks_of[h]), static_cast<int>(h));
  }
  const Domains hosts(host_of);
  const auto ranks = static_cast<int>(host_of.size());
  const int cores = host().cores;
  if (hosts.count() > 1) line_rate_ = fastest_port();
  if (line_rate_ > 0) used.machine.net_wire = 1024 / (line_rate_ / 8 * kOfTcp);
  const Geometry geometry = geometry_of(Options(), 0);
  const bool alone = hosts.count() == ranks;
  const ConnectionShape links =
      links_for(geometry.shape, ranks, hosts.most(ranks) > cores, alone, geometry.machine.l2_bytes);
  Platform platform{used.machine, ranks, cores * hosts.count(), links, geometry.tile_bytes};
  platform.domains = hosts;
  platform.hosts = hosts;
  if (ranks > 1 && alone) platform.least_piece = kLeastFarPiece;
  return platform;
}

double Expectation::us(std::int64_t bytes) {
  const Workload workload{collective_, static_cast<std::size_t>(bytes), DataType::float32,
                          Access::windows};
  const std::vector<Prediction> all = chooser_.candidates(workload);
  if (all.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no algorithm does {} here", name(collective_)));
  }
  // As communicators do: among equals not the fastest, but the simplest.
  const Algorithm& chosen = chooser_.choose(workload);
  const auto found = std::ranges::find(all, &chosen, &Prediction::algorithm);
  return (found == all.end() ? all.front() : *found).us();
}

}  // namespace tutti::check

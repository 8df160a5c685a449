// What tests of several hosts share: numberings of ranks on hosts, platforms of them, and plans
// that are laid out for them.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/model/domains.h"
#include "collectives/model/host_scenario.h"
#include "collectives/model/predict.h"
#include "tests/collectives/model/hops.h"
#include "transport/host/connection.h"

namespace tutti::test {

/// The host of each rank: `sizes` of them, one host after the other, or in turn.
inline std::vector<int> in_order(const std::vector<int>& sizes) {
  std::vector<int> of;
  for (std::size_t h = 0; h < sizes.size(); ++h) {
    of.insert(of.end(), static_cast<std::size_t>(sizes[h]), static_cast<int>(h));
  }
  return of;
}
inline std::vector<int> in_turn(int hosts, int each) {
  std::vector<int> of;
  for (int r = 0; r < hosts * each; ++r) of.push_back(r % hosts);
  return of;
}

inline const std::vector<std::vector<int>> kShapes = {
    in_order({4}),    in_order({1, 1}),     in_order({2, 2}),
    in_order({3, 3}), in_order({2, 2, 2}),  in_order({2, 2, 2, 2}),
    in_order({1, 3}), in_order({4, 1, 2}),  in_order({1, 1, 1, 1, 1}),
    in_turn(2, 2),    in_turn(3, 2),        in_turn(2, 4),
    {1, 0, 0, 1, 0},  {5, 5, 9, 2, 9, 9, 2}};

inline constexpr ConnectionShape kLinks{32, 64 << 10, 8};
inline constexpr std::size_t kTile = 4 << 20;

inline Platform platform(const std::vector<int>& host, double gbit = 10) {
  Machine m = default_machine();
  m.l2_bytes = 1 << 20;
  m.l3_bytes = 32 << 20;
  m.memory_bandwidth = 40;
  m.net_wire = 8 * 1024 / gbit;
  const int ranks = static_cast<int>(host.size());
  Platform p{m, ranks, ranks, kLinks, kTile};
  p.hosts = Domains(host);
  p.domains = Domains::on_hosts(host, std::vector<int>(host.size(), -1));
  return p;
}

inline Plan laid_out_plan(const Algorithm& a, const PlanRequest& request, const Domains& layout) {
  Plan plan;
  for (int r = 0; r < request.ranks; ++r) plan.ranks.push_back(generate(a, request, r, layout));
  plan.header = plan.ranks.front().header;
  return plan;
}

inline bool is_composed_or_grouped(const Algorithm& a) {
  return a.groups != Algorithm::Groups::none;
}

/// How many messages between hosts follow one from the other.
inline double hops_across(const Plan& plan, const Domains& hosts) {
  SimulationOptions across;
  across.hosts = &hosts;
  across.net_latency_ns = 1;
  return hops_of(plan, across);
}

}  // namespace tutti::test

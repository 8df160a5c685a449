#include "collectives/model/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "collectives/model/cost.h"
#include "collectives/model/simulate.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kSimulatedTiles = 4;
constexpr double kSharpness = 4;

/// What a rank does in one tile, in all.
struct Busy {
  double ns = 0, moved = 0, memory = 0, steps = 0;
};

Busy busy(const Costing& costing, const RankPlan& plan,
          std::vector<std::vector<double>>* costs = nullptr) {
  Busy total;
  if (costs != nullptr) costs->resize(plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    for (const Step& step : plan.lanes[l]) {
      const Costing::Cost cost = costing.of(plan, step);
      total.ns += cost.ns;
      total.moved += cost.moved;
      total.memory += cost.memory;
      total.steps += 1;
      if (costs != nullptr) (*costs)[l].push_back(cost.ns);
    }
  }
  return total;
}

double time_of_tiles(const Plan& plan, const StepCosts& costs, SimulationOptions options,
                     std::size_t tiles) {
  options.tiles = std::min(tiles, kSimulatedTiles);
  const double first = simulate(plan, costs, options);
  if (tiles <= kSimulatedTiles) return first;
  options.tiles = kSimulatedTiles / 2;
  const double pace =
      (first - simulate(plan, costs, options)) / static_cast<double>(kSimulatedTiles / 2);
  return first + pace * static_cast<double>(tiles - kSimulatedTiles);
}

double time_by_simulation(const Plan& plan, const StepCosts& costs, const Platform& p,
                          const Prediction& so_far) {
  const std::size_t tiles = so_far.tiles;
  SimulationOptions options;
  options.slots = p.links.slots_for(so_far.tile_bytes * plan.header.widest / plan.header.pieces);
  options.cores = p.cores;
  options.latency_ns = p.machine.latency_ns;
  options.far_latency_ns = p.machine.far_latency_ns;
  options.domains = &p.domains;
  options.switch_ns = p.machine.switch_ns;
  double time = time_of_tiles(plan, costs, options, tiles);
  if (p.ranks > p.cores) {
    // Which ranks share a core is for the kernel to say: the worse of two ways, or an algorithm
    // that happens to suit one of them would be taken for good.
    options.neighbours_share = true;
    time = std::max(time, time_of_tiles(plan, costs, options, tiles));
  }
  return time;
}

/// The busiest of a few ranks, and as many hops as the textbook says.
double time_by_formula(const Busy& busiest, const Hops& h, const Platform& p, std::size_t tiles) {
  const double hops = h.inside + h.across;
  const double of_a_core = std::max(1.0, static_cast<double>(p.ranks) / p.cores);
  const double switches = of_a_core > 1 ? hops * of_a_core * p.machine.switch_ns : 0;
  const double across = p.domains.count() > 1 ? p.machine.far_latency_ns : p.machine.latency_ns;
  const double ways = h.inside * p.machine.latency_ns + h.across * across;
  const double step = busiest.ns / std::max(1.0, busiest.steps);
  return std::max(busiest.ns * of_a_core, hops * step) + ways + switches +
         busiest.ns * of_a_core * static_cast<double>(tiles - 1);
}

}  // namespace

Platform gpu_platform(int ranks) {
  // Slots as large as all thread blocks' together.
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return {gpu_machine(), ranks, ranks, {4, 8 * kMiB}, 64 * kMiB, kMiB, true};
}

Prediction predict(const Algorithm& algorithm, const Workload& workload, const Platform& p) {
  Prediction result;
  if (algorithm.windows && workload.access == Access::none) return result;
  PlanRequest request;
  request.collective = workload.collective;
  request.ranks = p.ranks;
  result.simulated = p.ranks <= kMostSimulatedRanks;
  std::vector<int> looked_at{0, 1, p.ranks / 2, p.ranks - 1};
  if (result.simulated) {
    looked_at.resize(static_cast<std::size_t>(p.ranks));
    std::iota(looked_at.begin(), looked_at.end(), 0);
  }
  Plan plan;
  try {
    for (const int r : looked_at) plan.ranks.push_back(generate(algorithm, request, r, p.domains));
    plan.header = plan.ranks.front().header;
  } catch (const Error&) {
    return result;  // groups that do not divide the ranks, say
  }
  if (!links_suffice(plan.header, p.links)) return result;
  result.possible = true;

  const Costing costing(workload, p, plan, algorithm.windows);
  StepCosts costs(plan.ranks.size());
  Busy busiest, all;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const Busy b = busy(costing, plan.ranks[r], &costs[r]);
    busiest.ns = std::max(busiest.ns, b.ns);
    busiest.steps = std::max(busiest.steps, b.steps);
    busiest.moved = std::max(busiest.moved, b.moved);
    all.memory += b.memory;
  }
  result.tiles = costing.tiling().tiles;
  result.tile_bytes =
      std::min(costing.tiling().tile * size_of(workload.type), costing.block_bytes());
  const double tiles = static_cast<double>(result.tiles);
  result.moved = busiest.moved * tiles;
  const double ranks_seen = static_cast<double>(plan.ranks.size());
  result.memory_ns = all.memory * tiles * (p.ranks / ranks_seen) / p.machine.memory_bandwidth;
  const double time =
      result.simulated
          ? time_by_simulation(plan, costs, p, result)
          : time_by_formula(busiest, algorithm.hops(placed(request, p.domains)), p, result.tiles);
  // The greater of the two, but near each other they add up: not all of a call meets the limit.
  result.ns =
      p.machine.call_ns +
      std::pow(std::pow(time, kSharpness) + std::pow(result.memory_ns, kSharpness), 1 / kSharpness);
  if (algorithm.windows) result.ns += p.machine.window_ns;
  return result;
}

}  // namespace tutti

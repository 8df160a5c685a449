#include "collectives/model/predict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "collectives/model/cost.h"
#include "collectives/model/host_scenario.h"
#include "collectives/model/hosts.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kSimulatedTiles = 4;
constexpr double kSharpness = 4;

/// What a rank does in one tile, in all.
struct Busy {
  double ns = 0, moved = 0, memory = 0, steps = 0;
  double wire_out = 0, wire_in = 0;    // ns of its host's wire
  double messages = 0, to_others = 0;  // that it sends; to other hosts
};

Busy busy(const Costing& costing, const RankPlan& plan, std::vector<std::vector<double>>& costs,
          std::vector<std::vector<MessageCost>>& messages) {
  Busy total;
  costs.resize(plan.lanes.size());
  messages.resize(plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    for (const Step& step : plan.lanes[l]) {
      const Costing::Cost cost = costing.of(plan, step);
      total.ns += cost.ns + cost.far_out * cost.message.send + cost.far_in * cost.message.receive;
      total.moved += cost.moved;
      total.memory += cost.memory;
      total.steps += 1;
      total.wire_out += cost.far_out * cost.message.wire;
      total.wire_in += cost.far_in * cost.wire_in;
      total.to_others += cost.far_out;
      total.messages +=
          static_cast<double>(std::ranges::count_if(plan.destinations(step), &Operand::is_link));
      costs[l].push_back(cost.ns);
      messages[l].push_back(cost.message);
    }
  }
  return total;
}

double time_of_tiles(Scenario& scenario, std::size_t tiles) {
  scenario.in_turn = static_cast<std::uint32_t>(std::min(tiles, kSimulatedTiles));
  const double first = time_of(scenario);
  if (tiles <= kSimulatedTiles) return first;
  scenario.in_turn = kSimulatedTiles / 2;
  const double pace = (first - time_of(scenario)) / static_cast<double>(kSimulatedTiles / 2);
  return first + pace * static_cast<double>(tiles - kSimulatedTiles);
}

double time_by_simulation(const Plan& plan, const StepCosts& costs,
                          const OfSteps<MessageCost>& messages, const Platform& p, DataType type,
                          const Prediction& so_far) {
  SimulationOptions options;
  options.slots = p.links.slots_for(so_far.tile_bytes * widening(plan.header, type) *
                                    plan.header.widest / plan.header.pieces);
  options.cores = p.cores;
  options.latency_ns = p.machine.latency_ns;
  options.far_latency_ns = p.machine.far_latency_ns;
  options.domains = &p.domains;
  options.switch_ns = p.machine.switch_ns;
  options.hosts = &p.hosts;
  options.net_latency_ns = p.machine.net_latency_ns;
  options.messages = &messages;
  Scenario scenario = host_scenario(plan, costs, options);
  double time = time_of_tiles(scenario, so_far.tiles);
  if (p.ranks > p.cores) {
    // Which ranks share a core is for the kernel to say: the worse of two ways, or an algorithm
    // that happens to suit one of them would be taken for good.
    options.neighbours_share = true;
    place_on_cores(scenario, options);
    time = std::max(time, time_of_tiles(scenario, so_far.tiles));
  }
  return time;
}

/// The busiest of a few ranks, and as many hops as the textbook says. `all`: the `seen` ranks'
/// together.
double time_by_formula(const Busy& busiest, const Busy& all, double seen, double busiest_wire,
                       const Hops& h, const Platform& p, std::size_t tiles) {
  const double hops = h.inside + h.across;
  const double of_a_core = std::max(1.0, static_cast<double>(p.ranks) / p.cores);
  // A rank waits at most once a hop, and for no more messages than it gets.
  const double waits = std::max(hops, std::min(hops, all.messages / seen) * of_a_core);
  const double switches = of_a_core > 1 ? waits * p.machine.switch_ns : 0;
  const double across = p.domains.count() > 1 ? p.machine.far_latency_ns : p.machine.latency_ns;
  double ways = h.inside * p.machine.latency_ns + h.across * across;
  if (p.hosts.count() > 1) {
    // Groups are hosts; without groups as many of the hops are between hosts as of the messages.
    const double of_messages = all.to_others / std::max(all.messages, 1.0);
    const double between = h.inside > 0 ? h.across : std::ceil(hops * of_messages);
    ways = between * p.machine.net_latency_ns + (hops - between) * p.machine.latency_ns;
  }
  const double step = busiest.ns / std::max(1.0, busiest.steps);
  const double tile = std::max({busiest.ns, all.ns / seen * of_a_core, busiest_wire});
  return std::max(tile, hops * step) + ways + switches + tile * static_cast<double>(tiles - 1);
}

/// The wire of these ranks' hosts that is busy for longest, in one tile.
double busiest_wire(const std::vector<Busy>& ranks, const Plan& plan, const Domains& hosts) {
  std::vector<double> out(static_cast<std::size_t>(hosts.count())), in = out;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto host = static_cast<std::size_t>(hosts.number_of(plan.ranks[i].rank));
    out[host] += ranks[i].wire_out;
    in[host] += ranks[i].wire_in;
  }
  return std::max(std::ranges::max(out), std::ranges::max(in));
}

/// What the busiest of these ranks' hosts sends, or receives.
double busiest_host(const Plan& plan, const Domains& hosts, const Costing& costing, DataType type) {
  if (hosts.count() == 1) return 0;
  std::map<int, const RankPlan*> known;
  for (const RankPlan& part : plan.ranks) known[part.rank] = &part;
  const PlanParts parts{plan.header, [&](int rank) {
                          const auto found = known.find(rank);
                          return found == known.end() ? RankPlan{} : *found->second;
                        }};
  std::uint64_t most = 0;
  for (const Traffic& t : bytes_across(parts, hosts, costing.tiling(), costing.block(), type)) {
    most = std::max({most, t.sent, t.received});
  }
  return static_cast<double>(most);
}

}  // namespace

Platform gpu_platform(int ranks) {
  // Slots as large as all thread blocks' together.
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return {.machine = gpu_machine(),
          .ranks = ranks,
          .cores = ranks,
          .links = {4, 8 * kMiB},
          .tile_bytes = 64 * kMiB,
          .least_piece = kMiB,
          .flags_in_data = true,
          .wide_links = false};
}

Prediction predict(const Algorithm& algorithm, const Workload& workload, const Platform& p,
                   Sample sample) {
  Prediction result;
  result.algorithm = &algorithm;
  if (workload.access < algorithm.needs()) return result;
  PlanRequest request;
  request.collective = workload.collective;
  request.ranks = p.ranks;
  // Few operators scale. (On one host the form for all of them is as fast, or slower by one copy.)
  request.scales = p.hosts.count() == 1 && !workload.invariant;
  request.in_order = workload.invariant;
  result.simulated = p.ranks <= kMostSimulatedRanks;
  const Domains layout = workload.invariant ? Domains::subtrees(p.hosts) : p.layout();
  Plan plan;
  Use use;
  try {
    const bool one = sample == Sample::one && !result.simulated;
    // The last rank, which leads no group.
    for (const int r :
         one ? std::vector{p.ranks - 1} : typical_ranks(p.ranks, request.root, p.hosts)) {
      plan.ranks.push_back(generate(algorithm, request, r, layout));
      // Most of those that cannot run are known by their first part.
      if (addresses_across(plan.ranks.back(), p.hosts)) return result;
    }
    plan.header = plan.ranks.front().header;
    use = use_of(algorithm, plan.ranks, p.hosts);
  } catch (const Error&) {
    return result;  // groups that do not divide the ranks, say
  }
  if (use.across || !links_suffice(plan.header, p.links)) return result;
  if (!p.wide_links && widening(plan.header, workload.type) > 1) return result;
  result.possible = true;

  const Costing costing(workload, p, plan, use.path);
  StepCosts costs(plan.ranks.size());
  OfSteps<MessageCost> messages(plan.ranks.size());
  Busy busiest, all;
  std::vector<Busy> ranks;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const Busy b = ranks.emplace_back(busy(costing, plan.ranks[r], costs[r], messages[r]));
    busiest.ns = std::max(busiest.ns, b.ns);
    busiest.steps = std::max(busiest.steps, b.steps);
    busiest.moved = std::max(busiest.moved, b.moved);
    all.ns += b.ns;
    all.memory += b.memory;
    all.messages += b.messages;
    all.to_others += b.to_others;
  }
  result.tiles = costing.tiling().tiles;
  result.tile_bytes =
      std::min(costing.tiling().tile * size_of(workload.type), costing.block_bytes());
  const double tiles = static_cast<double>(result.tiles);
  result.moved = busiest.moved * tiles;
  const double seen = static_cast<double>(plan.ranks.size());
  result.across = costing.on_links(busiest_host(plan, p.hosts, costing, workload.type));
  result.memory_ns = all.memory * tiles * (p.ranks_of_a_host() / seen) / p.machine.memory_bandwidth;
  const double time =
      result.simulated
          ? time_by_simulation(plan, costs, messages, p, workload.type, result)
          : time_by_formula(busiest, all, seen, busiest_wire(ranks, plan, p.hosts),
                            algorithm.hops(placed(algorithm, request, layout)), p, result.tiles);
  // The greater of the two, but near each other they add up: not all of a call meets the limit.
  result.ns =
      p.machine.call_ns +
      std::pow(std::pow(time, kSharpness) + std::pow(result.memory_ns, kSharpness), 1 / kSharpness);
  if (use.path.windows) result.ns += p.machine.window_ns;
  // Calls over links need not wait for each other; this one waits for its readers. Where ranks
  // share cores, each way there and back takes a turn of the others.
  if (use.path.shares_tmp() && p.ranks_of_a_host() > p.cores) {
    const Hops hops = algorithm.hops(placed(algorithm, request, layout));
    result.ns += 2 * (hops.inside + hops.across) * p.machine.switch_ns;
  }
  return result;
}

}  // namespace tutti

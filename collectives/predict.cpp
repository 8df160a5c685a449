#include "collectives/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "collectives/simulate.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr double kKiB = 1024;
constexpr std::size_t kSimulatedTiles = 4;
constexpr double kSharpness = 4;

/// Of all domains together.
double l3_bytes_of(const Platform& p) { return p.machine.l3_bytes * p.domains.count(); }

/// ns per KiB of a buffer.
struct Speed {
  double read = 0, write = 0;
  double memory = 0;  // the part that comes from memory
};

/// One call, cut and weighed.
class Costing {
 public:
  Costing(const Workload& w, const Platform& p, const PlanHeader& header, bool windows)
      : machine_(p.machine),
        domains_(p.domains),
        copies_(w.access == Access::copies),
        flags_in_data_(p.flags_in_data),
        l3_bytes_(l3_bytes_of(p)),
        header_(header),
        type_(w.type),
        element_(size_of(w.type)) {
    const auto blocks_of = [&](int rank) {
      return in_blocks(w.collective, p.ranks, rank, 0) + out_blocks(w.collective, p.ranks, rank, 0);
    };
    const std::size_t widest = std::max(
        {in_blocks(w.collective, p.ranks, 0, 0), out_blocks(w.collective, p.ranks, 0, 0), 1U});
    block_ = w.bytes / widest / element_;
    if (w.bytes > 0) block_ = std::max<std::size_t>(block_, 1);
    tiling_ = cut(header, {windows, !windows}, block_, w.bytes, element_, p.links, p.tile_bytes,
                  p.least_piece);

    // A rank that is no root has the usual number of blocks; roots alone have more.
    const double mine = static_cast<double>(block_ * element_) * blocks_of(p.ranks > 1 ? 1 : 0);
    const double sharing = std::max(1.0, static_cast<double>(p.ranks) / p.cores);
    buffers_ = speed_of(mine * sharing, mine * p.ranks);
    // What goes to a rank on the same core stays in its cache. Who shares a core is not known.
    const double same_core = p.ranks > p.cores ? (sharing - 1) / (p.ranks - 1) : 0;
    slots_ = {std::lerp(machine_.slot_read, machine_.l2_read, same_core),
              std::lerp(machine_.slot_write, machine_.l2_write, same_core), 0};
  }

  const Tiling& tiling() const { return tiling_; }

  /// Bytes that rank plan `plan` receives through slots in one tile.
  double received(const RankPlan& plan) const {
    double bytes = 0;
    for (const auto& lane : plan.lanes) {
      for (const Step& step : lane) {
        bytes += bytes_of(step) *
                 static_cast<double>(std::ranges::count_if(plan.sources(step), &Operand::is_link));
      }
    }
    return bytes;
  }
  /// So many bytes of slots are in use, in all: do they stay in the cache?
  void expect_slots(double bytes) {
    slots_.memory = missing(bytes, l3_bytes_);
    slots_.read =
        std::lerp(slots_.read, std::max(slots_.read, machine_.memory_read), slots_.memory);
    slots_.write =
        std::lerp(slots_.write, std::max(slots_.write, machine_.memory_write), slots_.memory);
  }
  void write_past_caches(bool past) { stream_ = past; }
  std::size_t block_bytes() const { return block_ * element_; }

  struct Cost {
    double ns = 0;
    double moved = 0;   // bytes
    double memory = 0;  // bytes that go through the memory's pins
  };

  /// Of `step` of a whole tile.
  Cost of(const RankPlan& plan, const Step& step) const {
    Cost cost;
    cost.ns = machine_.step_ns;
    const auto links = [&](std::span<const Operand> operands) {
      return static_cast<double>(std::ranges::count_if(operands, &Operand::is_link));
    };
    cost.ns += machine_.link_ns * (links(plan.sources(step)) + links(plan.destinations(step)));
    const double bytes = bytes_of(step);
    if (bytes == 0) return cost;
    double memory_ns = 0;
    const bool copied_out =
        copies_ && std::ranges::any_of(plan.destinations(step), &Operand::is_remote);
    const bool past_caches = stream_ && links(plan.destinations(step)) == 0 && !copied_out;
    for (const Operand& o : plan.sources(step)) {
      read(o, plan, bytes, memory_ns, cost);
      if (copies_ && o.is_remote()) memory_ns += copy_ns(step, bytes);
    }
    for (const Operand& o : plan.destinations(step)) {
      write(o, plan, bytes, past_caches, memory_ns, cost);
      if (copies_ && o.is_remote()) memory_ns += copy_ns(step, bytes);
    }
    const double arithmetic =
        step.sources > 1 ? reduce_cost(machine_, type_) * bytes / kKiB * step.sources : 0;
    cost.ns += std::max(arithmetic, memory_ns);
    return cost;
  }

 private:
  /// A cache does not end at its size: from half of it on some is missing, at twice its size all.
  static double missing(double bytes, double cache) {
    return bytes > 0 ? std::clamp(std::log2(2 * bytes / std::max(cache, 1.0)) / 2, 0.0, 1.0) : 0;
  }

  Speed speed_of(double of_a_core, double of_all) const {
    const double beyond_l2 = missing(of_a_core, machine_.l2_bytes);
    const double beyond_l3 = missing(of_all, l3_bytes_);
    const auto mix = [&](double l2, double l3, double memory) {
      return std::lerp(std::lerp(l2, l3, beyond_l2), memory, beyond_l3);
    };
    return {mix(machine_.l2_read, machine_.l3_read, machine_.memory_read),
            mix(machine_.l2_write, machine_.l3_write, machine_.memory_write), beyond_l3};
  }

  double bytes_of(const Step& step) const {
    std::size_t elements = 0;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      elements += chunk_extent(tiling_, 0, block_, element_, header_.pieces,
                               (step.shape_chunk + i) % header_.pieces)
                      .count;
    }
    return static_cast<double>(elements * element_);
  }

  /// What it takes longer to have the kernel copy one of the step's operands than to address it.
  double copy_ns(const Step& step, double bytes) const {
    const double pages = machine_.copy_pages * bytes / kKiB;
    if (step.sources == 1 && step.destinations == 1) return machine_.copy_ns + pages;
    const double pieces = std::ceil(bytes / static_cast<double>(copied_piece(step.sources)));
    const double through_ours = (machine_.l2_write + machine_.l2_read) * bytes / kKiB;
    return machine_.copy_ns * pieces + pages + through_ours;
  }

  bool is_far(const Operand& o, const RankPlan& plan) const {
    return (o.is_link() || o.is_remote()) && !domains_.near(o.rank, plan.rank);
  }
  double at_least_far(double ns_per_kib, const Operand& o, const RankPlan& plan) const {
    return is_far(o, plan) ? std::max(ns_per_kib, machine_.far_data) : ns_per_kib;
  }

  /// tmp serves every tile anew, so it stays in a cache that the buffers do not fit.
  Speed own(const Operand& o, const RankPlan& plan) const {
    if (o.space != Space::tmp) return buffers_;
    const double tile =
        static_cast<double>(std::min(tiling_.tile, block_) * element_) / header_.pieces;
    const double bytes = tile * plan.tmp_chunks;
    const Speed tmp = speed_of(bytes, bytes * header_.ranks);
    return tmp.read < buffers_.read ? tmp : buffers_;
  }

  void read(const Operand& o, const RankPlan& plan, double bytes, double& ns, Cost& cost) const {
    cost.moved += bytes;
    if (o.is_link()) {
      if (bytes <= kInlineBytes) return;
      ns += at_least_far(slots_.read, o, plan) * bytes / kKiB;
      // The first line comes once the header is there, unless flags are in the data.
      if (!flags_in_data_) {
        ns += is_far(o, plan) ? machine_.far_latency_ns : machine_.latency_ns;
      }
      cost.memory += slots_.memory * bytes;
      return;
    }
    const Speed speed = own(o, plan);
    // Another rank's results were written a moment ago, by another core: they come as slots do.
    const bool foreign = o.is_remote() && o.space != Space::in && o.rank != plan.rank;
    const double ns_per_kib = foreign ? std::max(slots_.read, speed.read) : speed.read;
    ns += at_least_far(ns_per_kib, o, plan) * bytes / kKiB;
    cost.memory += speed.memory * bytes;
  }

  void write(const Operand& o, const RankPlan& plan, double bytes, bool past_caches, double& ns,
             Cost& cost) const {
    cost.moved += bytes;
    if (o.is_link()) {
      if (bytes <= kInlineBytes) return;
      ns += slots_.write * bytes / kKiB;
      cost.memory += slots_.memory * 2 * bytes;
      return;
    }
    const Speed speed = own(o, plan);
    const double ns_per_kib = past_caches ? machine_.stream_write : speed.write;
    ns += at_least_far(ns_per_kib, o, plan) * bytes / kKiB;
    // An ordinary store to memory reads the line before it writes it back.
    cost.memory += past_caches ? bytes : speed.memory * 2 * bytes;
  }

  const Machine& machine_;
  const Domains& domains_;
  bool copies_;  // other ranks' memory is not mapped
  bool flags_in_data_;
  double l3_bytes_;
  const PlanHeader& header_;
  DataType type_;
  std::size_t element_;
  std::size_t block_ = 0;  // elements
  Tiling tiling_;
  Speed buffers_;
  Speed slots_;
  bool stream_ = false;
};

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
                          std::size_t tiles) {
  SimulationOptions options;
  options.slots = p.links.slots;
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

  Costing costing(workload, p, plan.header, algorithm.windows);
  if (!algorithm.windows) {
    double most = 0;
    for (const RankPlan& rank : plan.ranks) most = std::max(most, costing.received(rank));
    const std::size_t in_use = std::min(p.links.slots, costing.tiling().tiles);
    costing.expect_slots(most * static_cast<double>(in_use) * p.ranks);
  }
  std::size_t slots = 0;
  for (const RankPlan& rank : plan.ranks) slots = std::max(slots, slots_in_use(rank, p.links));
  costing.write_past_caches(writes_past_caches(bytes_in_caches(workload.bytes, slots, p.ranks),
                                               static_cast<std::size_t>(l3_bytes_of(p))));
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
          ? time_by_simulation(plan, costs, p, result.tiles)
          : time_by_formula(busiest, algorithm.hops(placed(request, p.domains)), p, result.tiles);
  // The greater of the two, but near each other they add up: not all of a call meets the limit.
  result.ns =
      p.machine.call_ns +
      std::pow(std::pow(time, kSharpness) + std::pow(result.memory_ns, kSharpness), 1 / kSharpness);
  if (algorithm.windows) result.ns += p.machine.window_ns;
  return result;
}

}  // namespace tutti

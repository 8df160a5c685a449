// See nccl_model.h.
#include "laboratory/predict/nccl_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/cluster/parts.h"
#include "core/error.h"
#include "core/nearest.h"
#include "laboratory/predict/evidence.h"

namespace tutti {
namespace {

using cluster::Cluster;
using cluster::Orders;
using cluster::PartOf;
using cluster::Parts;

using cluster::block_of;
using cluster::kLeastTile;
using cluster::kMostTiles;

constexpr std::string_view kSwitch = "switch";
/// Tiles that are drawn at most.
constexpr int kDrawnTiles = 8;
/// NCCL cuts the data of a chain into slices by the size of its buffers, however long the data are.
constexpr int kMostSlices = 4096;

/// A plan that stands for an algorithm of NCCL's, and its particulars.
struct NcclPlan {
  std::string_view name;              // in the table of algorithms
  int most_tiles = 1;                 // it gains from tiles: stages that can run side by side
  bool trees = false;                 // between hosts
  bool sends = false, peers = false;  // sends and receives, in the order of ranks; to all peers
};
constexpr NcclPlan kRing{"ring"}, kBruck{"bruck"}, kChain{"chain", kMostSlices},
    kTree{"tree", kMostTiles, true}, kTreeOfHosts{"hierarchical_tree", kMostTiles, true},
    kNeighbours{"neighbours", 1, false, true}, kDirect{"direct", 1, false, true, true};

/// As NCCL does it, or what NCCL does not have as it stands, in tiles.
NcclPlan plan_named(std::string_view name) {
  for (const NcclPlan& known : {kRing, kBruck, kChain, kTree, kTreeOfHosts, kNeighbours, kDirect}) {
    if (known.name == name) return known;
  }
  return {name, kMostTiles};
}

const Algorithm& algorithm_named(Collective collective, std::string_view wanted) {
  const Algorithm* found = find_algorithm(collective, wanted);
  if (found != nullptr) return *found;
  std::vector<std::string_view> names;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == collective) names.push_back(a.name);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} has no algorithm '{}'{}; `tutti plan list` says which there are",
                          name(collective), wanted, did_you_mean(wanted, names)));
}

/// What NCCL has: rings (chains), trees between hosts, and where a host has one rank its PAT, which
/// is Bruck's.
std::vector<NcclPlan> plans_of(const Cluster& c, Collective collective) {
  const bool several = c.hosts() > 1;
  switch (collective) {
    case Collective::all_reduce:
      if (!several) return {kRing};
      return {kRing, c.ranks_of_a_host() == 1 ? kTree : kTreeOfHosts};
    case Collective::all_gather:
    case Collective::reduce_scatter:
      if (several && c.ranks_of_a_host() == 1 && c.hosts() > 2) return {kRing, kBruck};
      return {kRing};
    case Collective::broadcast:
    case Collective::reduce:
      return {kChain};
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return {kDirect};
    case Collective::send_recv:
      return {kNeighbours};
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is not predicted; all_reduce, all_gather, reduce_scatter, "
                              "broadcast, reduce, all_to_all, gather, scatter and send_recv are",
                              name(collective)));
  }
}

/// The time of a ring's turn, as a multiple of the time in which it moves chunks: NCCL goes around
/// as often as its buffers fit into the message, and each time begins by waiting for a slice.
double turns(const Cluster& c, const Algorithm& a, GpuProtocol p) {
  if (p != GpuProtocol::simple || !a.follows_order) return 1;
  const int rounds = a.collective == Collective::all_reduce ? 2 : 1;
  return 1 + c.constants().turn / std::max(1, rounds * (c.ranks() - 1));
}

/// All GPUs of a host reduce in its switch, each its share, and multicast it; between hosts each
/// share goes through two trees of hosts, or through switches that reduce as well. Both at once.
double time_in_switches(const Cluster& c, double bytes) {
  const GpuConstants& k = c.constants();
  const double gpus = c.ranks_of_a_host();
  const double inside =
      (1 + k.turn / 2) * bytes * (gpus + 1) / gpus / (c.switch_bandwidth() * k.switch_part * 1000);
  double us = k.call_simple + k.switch_call;
  if (c.hosts() == 1) return us + inside;
  const bool sums = c.network().sums;
  const double rounds = sums ? 1 : std::ceil(std::log2(c.hosts()));
  // Half of the data takes one tree and half the other (NCCL's graph/trees.cc). A host has three
  // neighbours in the one, and from four hosts on one of them has one in the other as well.
  const double times = sums || c.hosts() == 2 ? 1 : c.hosts() == 3 ? 1.5 : 2;
  const double across = bytes * times / (c.port_bandwidth() * 1000);
  us += 2 * rounds * (k.switch_net + c.network().latency);
  return us + std::max(inside, across);
}

void add_switches(const Cluster& c, const NcclCall& call, std::vector<Prediction>& all) {
  if (call.collective != Collective::all_reduce || c.switch_bandwidth() <= 0) return;
  if (!call.switches && call.algorithm != kSwitch) return;
  Prediction& p = all.emplace_back();
  p.possible = true;
  p.ns = 1000 * time_in_switches(c, call.bytes);
}

/// To NCCL, sends and receives have no rings: each pair of ranks has channels of its own. So have
/// copy engines.
Orders orders_for(const Cluster& c, const NcclPlan& plan) {
  return plan.sends ? Orders{plain_order(c)} : c.orders();
}

/// Each GPU's engines are told of a copy to each of the others, one after the other, and copy to
/// all of them at once; kernels are not needed, and so it is for what does not reduce.
Prediction by_copy_engines(const Cluster& c, const NcclCall& call) {
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      break;
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("copy engines do not do {}: all_gather, all_to_all, gather and "
                              "scatter are what NCCL has them for",
                              name(call.collective)));
  }
  if (!c.possible(GpuProtocol::copy)) {
    throw Error(ErrorCode::invalid_argument,
                c.hosts() > 1 ? "copy engines reach the GPUs of a host, and no other hosts"
                              : "copy engines need peer access, which these GPUs do not have");
  }
  Prediction p;
  p.algorithm = &algorithm_named(call.collective, kDirect.name);
  p.possible = true;
  p.protocol = GpuProtocol::copy;
  p.orders = orders_for(c, kDirect);
  const Parts parts(c, *p.algorithm, p.orders);
  const double block = block_of(call.collective, call.bytes, c.ranks());
  const double data = time_of(
      c, [&](int rank) { return parts(rank); }, block, p.protocol, 1, true);
  const GpuConstants& k = c.constants();
  p.ns = 1000 * (k.call(p.protocol) + (c.ranks() - 1) * k.copy_command + data);
  return p;
}

/// How many tiles are tried: powers of `by`, and the most that there can be, so that a call is
/// never slower than one of twice the size, which has twice as many.
std::vector<int> tiles_of(double bytes, int most, int by) {
  std::vector<int> all{1};
  for (int tiles = by; tiles <= most && bytes / tiles >= kLeastTile; tiles *= by) {
    all.push_back(tiles);
  }
  const int last = 2 * all.back();
  if (last <= most && bytes / last >= kLeastTile) all.push_back(last);
  return all;
}

/// us that a loop of calls takes less for each than one call alone. A GPU in a chain is done as
/// soon as it has passed on what it got, and begins the next call while those behind it still do
/// this one: of all messages of the way, its own two are left.
double overlapped(const Cluster& c, const NcclPlan& plan, GpuProtocol p) {
  if (plan.name != kChain.name || c.ranks() < 4) return 0;
  const int gpus = c.ranks_of_a_host();
  const double near = gpus > 1 ? c.constants().message(p, c.inside(0, 1).way) : 0;
  const double far = c.hosts() > 1 ? c.delay(p, GpuWay::network).latency : 0;
  const int across = c.hosts() - 1, inside = c.hosts() * (gpus - 1);
  return across * far + inside * near - 2 * std::max(near, far);
}

/// us for the messages of a call that sends to each peer of another host: the thread that drives
/// the network takes them one after the other.
double of_peers(const Cluster& c, const NcclCall& call, const NcclPlan& plan) {
  return plan.peers ? call.nccl.net_peer * (c.ranks() - c.ranks_of_a_host()) : 0;
}

/// us that NCCL's trees take more than the simulation: inside of a host they are chains, up and
/// down, where the plan has log2 of that many hops; and their messages between hosts take longer
/// than those of rings.
double of_trees(const Cluster& c, const NcclPlan& plan, GpuProtocol p) {
  if (c.hosts() == 1 || !plan.trees) return 0;
  const GpuConstants& k = c.constants();
  const int gpus = c.ranks_of_a_host();
  double us = 2 * std::ceil(std::log2(c.hosts())) * k.tree_more(p);
  if (gpus > 1) {
    us += 2 * (gpus - 1 - std::ceil(std::log2(gpus))) * k.message(p, c.inside(0, 1).way);
  }
  return us;
}

/// A plan on a cluster, to be timed. All steps of a ring are alike: of many hosts, a smaller ring
/// says how long each lap around a host takes, and what the first ones take besides.
class TimedPlan {
 public:
  TimedPlan(const Cluster& c, const NcclPlan& plan, const Algorithm& algorithm,
            const Orders& orders)
      : c_(c), plan_(plan), parts_(c, algorithm, orders) {
    const topology::Network& n = c.network();
    const bool alike = n.leaf == 0 || n.leaf >= c.hosts() || n.oversubscription <= 1;
    const bool many = c.hosts() >= kManyHosts && c.ranks_of_a_host() > 1;
    if (plan.name != kRing.name || !many || !alike) return;
    rounds_ = algorithm.collective == Collective::all_reduce ? 2 : 1;
    smaller_.emplace(c.with_hosts(kFewHosts), algorithm, orders);
    for (int r = 0; r < smaller_->c.ranks(); ++r) ring_.push_back(smaller_->parts(r));
  }

  /// Whether so many ranks are simulated that it takes seconds.
  bool is_long() const { return !smaller_ && c_.ranks() >= kManyRanks; }
  /// us that no protocol is faster than, where that is worth a look.
  double least(double block) const {
    if (!is_long()) return 0;
    return least_time(
        c_, [&](int rank) { return parts_(rank); }, block);
  }

  double us(double block, GpuProtocol p, int tiles) const {
    if (!smaller_) {
      return time_of(
          c_, [&](int rank) { return parts_(rank); }, block, p, tiles, plan_.peers);
    }
    // Messages as large: of an all_reduce, a rank's share of the block.
    if (rounds_ == 2) block *= static_cast<double>(smaller_->c.ranks()) / c_.ranks();
    const int laps = rounds_ * c_.hosts();
    const double few = laps_us(kFirstLaps, block, p, tiles);
    const double more = laps_us(kFirstLaps + 1, block, p, tiles);
    return few + (more - few) * (laps - kFirstLaps);
  }

 private:
  struct Smaller {
    Cluster c;
    Parts parts;
    Smaller(Cluster cluster, const Algorithm& algorithm, const Orders& orders)
        : c(std::move(cluster)), parts(c, algorithm, orders) {}
  };
  /// Of a ring that ends so many laps after its begin, but for the messages that its last lap
  /// lacks: one of each round.
  double laps_us(int laps, double block, GpuProtocol p, int tiles) const {
    const auto steps = static_cast<std::size_t>(laps * c_.ranks_of_a_host() - rounds_);
    return time_of(
        smaller_->c,
        [&](int rank) {
          RankPlan part = ring_[static_cast<std::size_t>(rank)];
          for (auto& lane : part.lanes) lane.resize(std::min(lane.size(), steps));
          return part;
        },
        block, p, tiles);
  }

  static constexpr int kManyHosts = 8, kFewHosts = 3, kFirstLaps = 2, kManyRanks = 256;
  const Cluster& c_;
  const NcclPlan& plan_;
  const Parts parts_;
  std::optional<Smaller> smaller_;
  std::vector<RankPlan> ring_;  // of the smaller cluster
  int rounds_ = 1;
};

std::vector<Prediction> by_kernels(const Cluster& c, const NcclCall& call) {
  std::vector<Prediction> all;
  auto plans = plans_of(c, call.collective);
  if (!call.algorithm.empty() && call.algorithm != kSwitch) plans = {plan_named(call.algorithm)};
  if (call.algorithm == kSwitch) plans.clear();
  const bool any = call.algorithm.empty() && !call.protocol;
  if (any || call.algorithm == kSwitch) add_switches(c, call, all);
  for (const NcclPlan& plan : plans) {
    Prediction best;
    best.algorithm = &algorithm_named(call.collective, plan.name);
    best.possible = true;
    best.orders = orders_for(c, plan);
    const TimedPlan timed(c, plan, *best.algorithm, best.orders);
    const double block = block_of(call.collective, call.bytes, c.ranks());
    double chosen = std::numeric_limits<double>::infinity();
    const double least = timed.least(block);
    const auto known_best = std::ranges::min_element(all, {}, &Prediction::ns);
    for (const GpuProtocol p : kGpuProtocols) {
      // NCCL knows no LL128 for sends and receives, which messages to all peers are, too.
      const bool known = p != GpuProtocol::ll128 || !plan.sends;
      const bool asked = !call.protocol || *call.protocol == p;
      if (!c.possible(p) || !known || !asked) continue;
      // What cannot be the fastest is not simulated.
      const double at_least = least / c.constants().data(p) + c.constants().call(p);
      if (least > 0 && known_best != all.end() && at_least >= known_best->us()) continue;
      double before = std::numeric_limits<double>::infinity();
      const std::vector<int> counts =
          tiles_of(call.bytes, plan.most_tiles, timed.is_long() ? 16 : 4);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const int tiles = counts[i];
        // NCCL knows nothing of turns when it chooses its protocol.
        const double us = timed.us(block, p, tiles) + c.constants().call(p) + of_trees(c, plan, p) -
                          overlapped(c, plan, p);
        // With more tiles it gets better and then worse: than this protocol's, not another's. The
        // most count in any case.
        if (us >= before && i + 2 < counts.size()) i = counts.size() - 2;
        before = us;
        if (us >= chosen) continue;
        chosen = us;
        best.protocol = p;
        best.tiles = static_cast<std::size_t>(tiles);
      }
    }
    if (!std::isfinite(chosen)) continue;  // it is slower, or the protocol does not go there
    const double turn = turns(c, *best.algorithm, best.protocol);
    best.ns =
        1000 * (turn == 1 ? chosen
                          : timed.us(block * turn, best.protocol, static_cast<int>(best.tiles)) +
                                c.constants().call(best.protocol));
    best.ns += 1000 * of_peers(c, call, plan);
    all.push_back(best);
  }
  if (all.empty()) {
    throw Error(ErrorCode::invalid_argument,
                call.protocol
                    ? fmt::format("{} does not go between these GPUs", name(*call.protocol))
                    : "no switch of this cluster reduces");
  }
  return all;
}

}  // namespace

std::vector<Prediction> predict_nccl(const Cluster& c, const NcclCall& call) {
  std::vector<Prediction> all =
      call.copy_engines ? std::vector{by_copy_engines(c, call)} : by_kernels(c, call);
  for (Prediction& p : all) p.ns += 1000 * us_of_launches(c, call);
  // NCCL chooses by what it knows, and then takes as long as it takes.
  std::ranges::stable_sort(all, {}, &Prediction::ns);
  for (Prediction& p : all) {
    const CallKind kind = kind_of(c, call.collective, p);
    p.ns *= ramp(kind, measured_bytes(c, p, kind, call.bytes));
  }
  return all;
}

double us_of_launches(const Cluster& c, const NcclCall& call) {
  return (call.gpus_of_thread - 1) * c.constants().launch_more;
}

std::string_view algorithm_of(const Prediction& prediction) {
  return prediction.algorithm == nullptr ? kSwitch : prediction.algorithm->name;
}

cluster::Simulated simulate_nccl(const Cluster& c, const NcclCall& call,
                                 const Prediction& prediction, bool record) {
  if (prediction.algorithm == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "reductions in switches are not simulated message by message; --algorithm names "
                "another one");
  }
  const Algorithm& a = *prediction.algorithm;
  const Parts parts(c, a, prediction.orders.empty() ? c.orders() : prediction.orders);
  cluster::SimulateOptions o;
  o.protocol = prediction.protocol;
  const int tiles = static_cast<int>(prediction.tiles);
  o.tiles = std::min(tiles, kDrawnTiles);
  o.block_bytes = block_of(call.collective, call.bytes, c.ranks()) * o.tiles / tiles *
                  turns(c, a, prediction.protocol);
  o.at_once = plan_named(a.name).peers;
  o.record = record;
  return simulate(
      c, [&](int rank) { return parts(rank); }, o);
}

}  // namespace tutti

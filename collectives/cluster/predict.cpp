// See predict.h.
#include "collectives/cluster/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "collectives/algorithms.h"
#include "collectives/model/domains.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

constexpr std::string_view kSwitch = "switch";
/// Of these so many are simulated together; the pace of the last ones goes on.
constexpr int kSimulatedTiles = 8;

struct Candidate {
  std::string_view name;  // in the table of algorithms
  bool tiles = false;     // it gains from tiles: stages that can run side by side
};

/// What NCCL has: rings (chains), trees between hosts, and where a host has one rank its PAT, which
/// is Bruck's.
std::vector<Candidate> candidates(const Cluster& c, Collective collective) {
  const bool several = c.hosts() > 1;
  switch (collective) {
    case Collective::all_reduce:
      if (!several) return {{"ring"}};
      if (c.ranks_of_a_host() == 1) return {{"ring"}, {"tree", true}};
      return {{"ring"}, {"hierarchical_tree", true}};
    case Collective::all_gather:
    case Collective::reduce_scatter:
      if (several && c.ranks_of_a_host() == 1 && c.hosts() > 2) return {{"ring"}, {"bruck"}};
      return {{"ring"}};
    case Collective::broadcast:
    case Collective::reduce:
      return {{"chain", true}};
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return {{"direct"}};
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is not predicted; all_reduce, all_gather, reduce_scatter, "
                              "broadcast, reduce, all_to_all, gather and scatter are",
                              name(collective)));
  }
}

double block_of(Collective collective, double bytes, int ranks) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
      return bytes;
    default:
      return bytes / ranks;
  }
}

/// What a turn of a ring takes besides moving its chunks, as a part of it: NCCL goes around so
/// often as its buffers are smaller than the message, and each time begins with a slice that is
/// waited for.
double turns(const Cluster& c, const Call& call, std::string_view algorithm, Protocol p) {
  if (p != Protocol::simple || (algorithm != "ring" && algorithm != "chain")) return 1;
  const int rounds = call.collective == Collective::all_reduce ? 2 : 1;
  return 1 + c.constants().turn / std::max(1, rounds * (c.ranks() - 1));
}

/// Makes parts of an algorithm's plan, laid out for the cluster.
class Parts {
 public:
  Parts(const Cluster& c, Collective collective, std::string_view algorithm)
      : algorithm_(find_algorithm(collective, algorithm)) {
    if (algorithm_ == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} has no algorithm '{}'; `tutti plan list` says which there are",
                              name(collective), algorithm));
    }
    const int k = c.ranks_of_a_host();
    request_.collective = collective;
    request_.ranks = c.ranks();
    request_.scales = false;
    if (c.hosts() > 1 && k > 1) request_.group = k;
    if (!algorithm_->lanes || c.ranks() == 1) return;
    for (const auto& order : c.orders()) {
      std::vector<int> ranks;
      for (int h = 0; h < c.hosts(); ++h) {
        for (const int i : order) ranks.push_back(h * k + i);
      }
      lanes_.push_back(Domains::in_order(ranks));
    }
  }

  RankPlan operator()(int rank) const {
    if (lanes_.empty()) return algorithm_->generate(request_, rank);
    return generate(*algorithm_, request_, rank, lanes_);
  }

 private:
  const Algorithm* algorithm_;
  PlanRequest request_;
  std::vector<Domains> lanes_;
};

double simulated(const Cluster& c, const PartOf& part, double block, Protocol protocol, int tiles) {
  SimulateOptions o;
  o.protocol = protocol;
  o.tiles = std::min(tiles, kSimulatedTiles);
  o.block_bytes = block * o.tiles / tiles;
  const double first = simulate(c, part, o).us;
  if (tiles <= kSimulatedTiles) return first;
  const int fewer = kSimulatedTiles / 2;
  o.block_bytes = block * fewer / tiles;
  o.tiles = fewer;
  const double pace = (first - simulate(c, part, o).us) / fewer;
  return first + pace * (tiles - kSimulatedTiles);
}

/// All GPUs of a host reduce in its switch, each its share, and multicast it; between hosts each
/// share goes through two trees of hosts, or through switches that reduce as well. Both at once.
double time_in_switches(const Cluster& c, double bytes) {
  const Constants& k = c.constants();
  const double gpus = c.ranks_of_a_host();
  const double inside =
      (1 + k.turn / 2) * bytes * (gpus + 1) / gpus / (c.switch_bandwidth() * k.switch_part * 1000);
  double us = k.call_simple + k.switch_call;
  if (c.hosts() == 1) return us + inside;
  const bool sums = c.network().sums;
  const double rounds = sums ? 1 : std::ceil(std::log2(c.hosts()));
  // A host in two trees takes from two children, gives to a parent, and the same back.
  const double times = sums || c.hosts() == 2 ? 1 : 2.0 * (c.hosts() - 1) / c.hosts();
  const double across = bytes * times / (c.port_bandwidth() * 1000);
  us += 2 * rounds * (k.switch_net + c.network().latency);
  return us + std::max(inside, across);
}

void add_switches(const Cluster& c, const Call& call, std::vector<Prediction>& all) {
  if (call.collective != Collective::all_reduce || c.switch_bandwidth() <= 0) return;
  all.push_back({time_in_switches(c, call.bytes), std::string(kSwitch), Protocol::simple, 1});
}

}  // namespace

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

std::vector<Prediction> predict(const Cluster& c, const Call& call) {
  std::vector<Prediction> all;
  auto plans = candidates(c, call.collective);
  if (!call.algorithm.empty() && call.algorithm != kSwitch) plans = {{call.algorithm, true}};
  if (call.algorithm == kSwitch) plans.clear();
  for (const Candidate& candidate : plans) {
    const Parts parts(c, call.collective, candidate.name);
    const PartOf part = [&](int rank) { return parts(rank); };
    const double block = block_of(call.collective, call.bytes, c.ranks());
    Prediction best{std::numeric_limits<double>::infinity(), std::string(candidate.name), {}, 1};
    for (const Protocol p : kProtocols) {
      if (!c.possible(p)) continue;
      for (const int tiles : {1, 4, 16, 64, 256}) {
        // Smaller pieces than slices of the least size are not made.
        if (tiles > 1 && (!candidate.tiles || call.bytes / tiles < 65536)) break;
        const double us = simulated(c, part, block * turns(c, call, candidate.name, p), p, tiles) +
                          c.constants().call(p);
        if (us >= best.us) {
          if (tiles > 1) break;
          continue;
        }
        best.us = us;
        best.protocol = p;
        best.tiles = tiles;
      }
    }
    all.push_back(best);
  }
  if (call.algorithm.empty() || call.algorithm == kSwitch) add_switches(c, call, all);
  if (all.empty()) {
    throw Error(ErrorCode::invalid_argument, "no switch of this cluster reduces");
  }
  for (Prediction& p : all) p.us += (call.gpus_of_thread - 1) * c.constants().launch_more;
  std::ranges::stable_sort(all, {}, &Prediction::us);
  return all;
}

Simulated simulate(const Cluster& c, const Call& call, const Prediction& prediction, bool record) {
  if (prediction.algorithm == kSwitch) {
    throw Error(ErrorCode::invalid_argument,
                "reductions in switches are not simulated message by message; --algorithm names "
                "another one");
  }
  const Parts parts(c, call.collective, prediction.algorithm);
  SimulateOptions o;
  o.protocol = prediction.protocol;
  o.tiles = std::min(prediction.tiles, kSimulatedTiles);
  o.block_bytes = block_of(call.collective, call.bytes, c.ranks()) * o.tiles / prediction.tiles *
                  turns(c, call, prediction.algorithm, prediction.protocol);
  o.record = record;
  return simulate(
      c, [&](int rank) { return parts(rank); }, o);
}

}  // namespace tutti::cluster

// See predict.h.
#include "collectives/cluster/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/cluster/parts.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

constexpr std::string_view kSwitch = "switch";
/// NCCL cuts what goes down a chain into slices by the size of its buffers, however long it is.
constexpr int kMostSlices = 4096;

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

/// What a turn of a ring takes besides moving its chunks, as a part of it: NCCL goes around so
/// often as its buffers are smaller than the message, and each time begins with a slice that is
/// waited for.
double turns(const Cluster& c, const Call& call, std::string_view algorithm, Protocol p) {
  if (p != Protocol::simple || (algorithm != "ring" && algorithm != "chain")) return 1;
  const int rounds = call.collective == Collective::all_reduce ? 2 : 1;
  return 1 + c.constants().turn / std::max(1, rounds * (c.ranks() - 1));
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

/// NCCL has a message to each peer under way at once, by its channels, and so have copy engines.
bool sends_at_once(std::string_view algorithm) { return algorithm == "direct"; }

Orders orders_for(const Cluster& c, std::string_view algorithm) {
  return sends_at_once(algorithm) ? Orders{plain_order(c)} : c.orders();
}

/// Each GPU's engines are told of a copy to each of the others, one after the other, and copy to
/// all of them at once; kernels are not needed, and so it is for what does not reduce.
Prediction by_copy_engines(const Cluster& c, const Call& call) {
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
  if (!c.possible(Protocol::copy)) {
    throw Error(ErrorCode::invalid_argument,
                c.hosts() > 1 ? "copy engines reach the GPUs of a host, and no other hosts"
                              : "copy engines need peer access, which these GPUs do not have");
  }
  Prediction p{0, "direct", Protocol::copy, 1, orders_for(c, "direct")};
  const Parts parts(c, call.collective, p.algorithm, p.orders);
  const double block = block_of(call.collective, call.bytes, c.ranks());
  const double data = time_of(
      c, [&](int rank) { return parts(rank); }, block, p.protocol, 1, true);
  p.us = c.constants().call(p.protocol) + (c.ranks() - 1) * c.constants().copy_command + data;
  return p;
}

/// us that NCCL's trees take besides what is simulated: inside of a host they are chains, up and
/// down, where the plan has log2 of that many hops, and their messages between hosts take longer
/// than those of rings.
double of_trees(const Cluster& c, std::string_view algorithm, Protocol p) {
  if (c.hosts() == 1 || (algorithm != "tree" && algorithm != "hierarchical_tree")) return 0;
  const Constants& k = c.constants();
  const int gpus = c.ranks_of_a_host();
  double us = 2 * std::ceil(std::log2(c.hosts())) * k.tree_more(p);
  if (gpus > 1) {
    us += 2 * (gpus - 1 - std::ceil(std::log2(gpus))) * k.message(p, c.inside(0, 1).way);
  }
  return us;
}

std::vector<Prediction> by_kernels(const Cluster& c, const Call& call) {
  std::vector<Prediction> all;
  auto plans = candidates(c, call.collective);
  if (!call.algorithm.empty() && call.algorithm != kSwitch) plans = {{call.algorithm, true}};
  if (call.algorithm == kSwitch) plans.clear();
  for (const Candidate& candidate : plans) {
    Prediction best{0, std::string(candidate.name), {}, 1};
    best.orders = orders_for(c, candidate.name);
    const Parts parts(c, call.collective, candidate.name, best.orders);
    const PartOf part = [&](int rank) { return parts(rank); };
    const double block = block_of(call.collective, call.bytes, c.ranks());
    const int most_tiles = candidate.name == "chain" ? kMostSlices : kMostTiles;
    double chosen = std::numeric_limits<double>::infinity();
    for (const Protocol p : kProtocols) {
      // Messages to all peers are sends and receives to NCCL, which knows no LL128 for them.
      const bool known = p != Protocol::ll128 || !sends_at_once(candidate.name);
      if (!c.possible(p) || !known) continue;
      double before = std::numeric_limits<double>::infinity();
      for (int tiles = 1; tiles <= most_tiles; tiles *= 4) {
        if (tiles > 1 && (!candidate.tiles || call.bytes / tiles < kLeastTile)) break;
        // NCCL knows nothing of turns when it chooses its protocol.
        const double us = time_of(c, part, block, p, tiles, sends_at_once(candidate.name)) +
                          c.constants().call(p) + of_trees(c, candidate.name, p);
        // With more tiles it gets better and then worse: than this protocol's, not another's.
        if (us >= before) break;
        before = us;
        if (us >= chosen) continue;
        chosen = us;
        best.protocol = p;
        best.tiles = tiles;
      }
    }
    const double turn = turns(c, call, candidate.name, best.protocol);
    best.us = turn == 1 ? chosen
                        : time_of(c, part, block * turn, best.protocol, best.tiles) +
                              c.constants().call(best.protocol);
    all.push_back(best);
  }
  if (call.algorithm.empty() || call.algorithm == kSwitch) add_switches(c, call, all);
  if (all.empty()) {
    throw Error(ErrorCode::invalid_argument, "no switch of this cluster reduces");
  }
  return all;
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
  std::vector<Prediction> all =
      call.copy_engines ? std::vector{by_copy_engines(c, call)} : by_kernels(c, call);
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
  const Parts parts(c, call.collective, prediction.algorithm,
                    prediction.orders.empty() ? c.orders() : prediction.orders);
  SimulateOptions o;
  o.protocol = prediction.protocol;
  o.tiles = std::min(prediction.tiles, kDrawnTiles);
  o.block_bytes = block_of(call.collective, call.bytes, c.ranks()) * o.tiles / prediction.tiles *
                  turns(c, call, prediction.algorithm, prediction.protocol);
  o.at_once = sends_at_once(prediction.algorithm);
  o.record = record;
  return simulate(
      c, [&](int rank) { return parts(rank); }, o);
}

}  // namespace tutti::cluster

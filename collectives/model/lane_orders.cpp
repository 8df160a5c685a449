// See lanes.h. From lanes to plans: in which orders their lanes pass the ranks, how many there are,
// and who is near whom.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/model/lanes.h"
#include "core/error.h"

namespace tutti {

using topology::Graph;

std::vector<int> order_of_lanes(const Lanes& lanes, int count) {
  // Each next lane goes to the order whose lanes have the most to carry (D'Hondt's method).
  std::vector<int> given(lanes.lanes.size());
  std::vector<int> orders;
  for (int i = 0; i < count; ++i) {
    std::size_t best = 0;
    const auto load = [&](std::size_t l) { return lanes.lanes[l].bandwidth / (given[l] + 1); };
    for (std::size_t l = 1; l < given.size(); ++l) {
      if (load(l) > load(best) * (1 + 1e-9)) best = l;
    }
    ++given.at(best);
    orders.push_back(static_cast<int>(best));
  }
  return orders;
}

std::vector<Domains> orders_of(const Lanes& lanes, int count, std::span<const int> node_of_rank) {
  if (lanes.lanes.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "there is no order of these GPUs: some do not reach each other");
  }
  std::vector<Domains> orders;
  for (const int order : order_of_lanes(lanes, count)) {
    std::vector<int> ranks;
    for (const int gpu : lanes.lanes[static_cast<std::size_t>(order)].gpus) {
      const auto at = std::ranges::find(node_of_rank, gpu);
      if (at == node_of_rank.end()) {
        throw Error(ErrorCode::invalid_argument, "a lane has a GPU that is no rank's");
      }
      ranks.push_back(static_cast<int>(at - node_of_rank.begin()));
    }
    orders.push_back(Domains::in_order(ranks));
  }
  return orders;
}

Domains domains_of(const Graph& graph, std::span<const int> node_of_rank) {
  std::vector<int> of(node_of_rank.size());
  std::iota(of.begin(), of.end(), 0);
  const auto join = [&](int a, int b) { std::ranges::replace(of, std::max(a, b), std::min(a, b)); };
  bool linked = false;
  for (std::size_t r = 0; r < of.size(); ++r) {
    const auto paths = graph.paths(node_of_rank[r]);
    for (std::size_t other = 0; other < r; ++other) {
      if (paths[static_cast<std::size_t>(node_of_rank[other])].near != topology::Near::gpu_links)
        continue;
      linked = true;
      join(of[r], of[other]);
    }
  }
  if (linked) return Domains(of);
  for (std::size_t r = 0; r < of.size(); ++r) {
    int node = node_of_rank[r];
    while (node >= 0 && graph.node(node).kind != topology::NodeKind::numa) {
      node = graph.node(node).parent;
    }
    of[r] = node;
  }
  return Domains(of);
}

int lane_count(const Lanes& lanes) {
  // NCCL's channels carry up to 30 GB/s each on H200, where a block copies that much.
  constexpr double kOfOneBlock = 30;
  return std::clamp(static_cast<int>(std::ceil(lanes.bandwidth / kOfOneBlock - 1e-9)), 1, 32);
}

}  // namespace tutti

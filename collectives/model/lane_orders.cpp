// See lanes.h. From lanes to plans: in which orders their lanes pass the ranks, and which ranks are
// near each other.
#include <algorithm>
#include <numeric>

#include "collectives/model/lanes.h"
#include "core/error.h"

namespace tutti {

using topology::Graph;

std::vector<Domains> orders_of(const Lanes& lanes, std::span<const int> node_of_rank) {
  if (lanes.lanes.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "there is no order of these GPUs: some do not reach each other");
  }
  std::vector<Domains> orders;
  for (const LaneOrder& lane : lanes.lanes) {
    std::vector<int> ranks;
    for (const int gpu : lane.gpus) {
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

}  // namespace tutti

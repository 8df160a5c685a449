// See place.h.
#include "topology/place.h"

#include <map>
#include <mutex>

#include "core/cpu_mask.h"
#include "core/log.h"
#include "core/settings.h"
#include "topology/discover.h"
#include "topology/nics.h"

namespace tutti::topology {

std::shared_ptr<const Graph> host_graph() {
  const std::string file = setting_text("TUTTI_TOPO_FILE");
  if (file == "off") return nullptr;
  // Not owned: it is never destroyed.
  if (file.empty()) return {std::shared_ptr<const Graph>(), &this_machine()};
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<const Graph>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Graph>& graph = known[file];
  if (!graph) {
    Records records = read_records(file);
    graph = std::make_shared<const Graph>(graph_of(records));
    for (const Doubt& d : graph->doubts) log().warn("topology: {}", d.what);
  }
  return graph;
}

int gpu_node(const Graph& graph, const std::string& bus, int number) {
  const auto id = parse_bus_id(bus);
  for (const int gpu : graph.gpus()) {
    const Node& node = graph.node(gpu);
    if (id ? node.bus == id : node.number == number) return gpu;
  }
  return -1;
}

int cores_node(const Graph& graph, const CoreSet& cores) {
  for (const int numa : graph.all(NodeKind::numa)) {
    CoreSet left = cores;
    for (const int core : members_of_mask(graph.node(numa).cores)) {
      if (static_cast<std::size_t>(core) < left.size()) left.reset(static_cast<std::size_t>(core));
    }
    if (left.none() && cores.any()) return numa;
  }
  return -1;
}

std::vector<int> near_ports(const Graph& graph, int node) {
  if (node < 0) return {};
  if (graph.node(node).kind == NodeKind::gpu) {
    for (const NicChoice& c : nics_of_gpus(graph)) {
      if (c.gpu == node && c.port >= 0) return {c.port};
    }
    return {};
  }
  std::vector<int> nearest;
  Near best = Near::apart;
  const auto paths = graph.paths(node);
  for (const int port : data_ports(graph, graph.node(node).host)) {
    const Near near = paths[static_cast<std::size_t>(port)].near;
    if (near > best || near == Near::apart) continue;
    if (near < best) nearest.clear();
    best = near;
    nearest.push_back(port);
  }
  return nearest;
}

}  // namespace tutti::topology

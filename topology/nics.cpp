// See nics.h.
#include "topology/nics.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti::topology {
namespace {

constexpr std::size_t kMostCandidates = 256;

/// Of its NIC's PCI link and its own speed, the lower.
double speed_of(const Graph& graph, int port) {
  double speed = 0;
  for (const int l : graph.out(port)) speed = std::max(speed, graph.link(l).bandwidth);
  return speed;
}

}  // namespace

std::vector<int> data_ports(const Graph& graph, int host) {
  std::vector<int> ports;
  bool any_real = false, any_up = false;
  const auto is_real = [&](int p) { return graph.node(p).bus.has_value(); };
  for (const int p : graph.all(NodeKind::port)) {
    if (graph.node(p).host != host) continue;
    ports.push_back(p);
    any_real = any_real || is_real(p);
    any_up = any_up || graph.node(p).up;
  }
  std::erase_if(ports,
                [&](int p) { return (any_real && !is_real(p)) || (any_up && !graph.node(p).up); });
  double fastest = 0;
  for (const int p : ports) fastest = std::max(fastest, speed_of(graph, p));
  std::erase_if(ports, [&](int p) { return speed_of(graph, p) < fastest / 2; });
  return ports;
}

std::vector<NicChoice> nics_of_gpus(const Graph& graph) {
  std::vector<NicChoice> choices;
  std::map<int, std::vector<int>> ports;
  for (int h = 0; h < graph.hosts(); ++h) ports[h] = data_ports(graph, h);
  for (const int gpu : graph.gpus()) {
    NicChoice c;
    c.gpu = gpu;
    const auto paths = graph.paths(gpu);
    for (const int port : ports[graph.node(gpu).host]) {
      const Path& path = paths[static_cast<std::size_t>(port)];
      if (path.near != Near::apart) c.candidates.push_back({port, path});
    }
    std::ranges::stable_sort(c.candidates, {}, [](const NicChoice::Candidate& n) {
      return std::tuple{n.path.near, -n.path.bandwidth};
    });
    // No host has as many that are worth a look; a file may say so of thousands.
    if (c.candidates.size() > kMostCandidates) {
      c.candidates.resize(kMostCandidates);
      c.candidates.shrink_to_fit();
    }
    choices.push_back(std::move(c));
  }
  // Those with the fewest equals first, so that the others leave them theirs.
  const auto best = [](const NicChoice& c) {
    std::size_t n = 0;
    while (n < c.candidates.size() && c.candidates[n].path.near == c.candidates.front().path.near &&
           c.candidates[n].path.bandwidth == c.candidates.front().path.bandwidth) {
      ++n;
    }
    return n;
  };
  std::vector<std::size_t> order(choices.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return best(choices[i]); });
  std::map<int, int> users;
  for (const std::size_t i : order) {
    NicChoice& c = choices[i];
    const auto end = c.candidates.begin() + static_cast<std::ptrdiff_t>(best(c));
    const auto chosen = std::min_element(
        c.candidates.begin(), end, [&](auto& a, auto& b) { return users[a.port] < users[b.port]; });
    if (chosen == end) continue;
    std::rotate(c.candidates.begin(), chosen, chosen + 1);
    c.port = c.candidates.front().port;
    c.path = c.candidates.front().path;
    ++users[c.port];
  }
  for (NicChoice& c : choices) c.sharing = c.port < 0 ? 0 : users[c.port];
  return choices;
}

}  // namespace tutti::topology

// See graph.h.
#include "topology/graph.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

namespace tutti::topology {

std::string_view name(NodeKind kind) {
  switch (kind) {
    case NodeKind::host:
      return "host";
    case NodeKind::numa:
      return "numa";
    case NodeKind::root:
      return "root";
    case NodeKind::bridge:
      return "bridge";
    case NodeKind::device:
      return "device";
    case NodeKind::gpu:
      return "gpu";
    case NodeKind::gpu_switch:
      return "gpu_switch";
    case NodeKind::nic:
      return "nic";
    case NodeKind::port:
      return "port";
    case NodeKind::network:
      return "network";
  }
  return "";
}

std::string_view name(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink:
      return "NVLink";
    case LinkKind::xgmi:
      return "xGMI";
    case LinkKind::c2c:
      return "C2C";
    case LinkKind::pci:
      return "PCI";
    case LinkKind::socket:
      return "socket";
    case LinkKind::network:
      return "network";
    case LinkKind::inside:
      return "inside";
  }
  return "";
}

std::string_view name(Near near) {
  switch (near) {
    case Near::self:
      return "X";
    case Near::gpu_links:
      return "NV";
    case Near::pix:
      return "PIX";
    case Near::pxb:
      return "PXB";
    case Near::phb:
      return "PHB";
    case Near::node:
      return "NODE";
    case Near::sys:
      return "SYS";
    case Near::network:
      return "NET";
    case Near::apart:
      return "-";
  }
  return "";
}

int Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  out_.emplace_back();
  return static_cast<int>(nodes_.size()) - 1;
}

void Graph::connect(int a, int b, Link there, Link back) {
  const auto one = [&](int from, int to, Link& link) {
    if (!(link.bandwidth > 0)) return;
    link.from = from;
    link.to = to;
    out_[static_cast<std::size_t>(from)].push_back(static_cast<int>(links_.size()));
    links_.push_back(std::move(link));
  };
  one(a, b, there);
  one(b, a, back);
}

int Graph::hosts() const {
  int most = 0;
  for (const Node& n : nodes_) most = std::max(most, n.host + 1);
  return most;
}

std::vector<int> Graph::all(NodeKind kind) const {
  std::vector<int> found;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    if (node(n).kind == kind) found.push_back(n);
  }
  std::ranges::stable_sort(found, {}, [&](int n) {
    const int number = node(n).number;
    return std::pair{node(n).host, number < 0 ? std::numeric_limits<int>::max() : number};
  });
  return found;
}

int Graph::find(std::string_view wanted) const {
  const auto at = std::ranges::find(nodes_, wanted, &Node::name);
  return at == nodes_.end() ? -1 : static_cast<int>(at - nodes_.begin());
}

double Graph::bandwidth_out(int n) const {
  double sum = 0;
  for (const int l : out(n)) sum += link(l).bandwidth;
  return sum;
}

std::vector<Path> Graph::paths(int from) const {
  std::vector<Path> all = paths(from, false);
  if (node(from).kind != NodeKind::gpu) return all;
  // GPUs use links of their own, also where the way through a processor is as wide: C2C is.
  std::vector<Path> linked = paths(from, true);
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (nodes_[n].kind == NodeKind::gpu && !linked[n].links.empty()) all[n] = std::move(linked[n]);
  }
  return all;
}

std::vector<Path> Graph::paths(int from, bool gpu_links) const {
  // Dijkstra's algorithm for the widest path; -1 is the start's own link.
  struct Best {
    double bandwidth = 0;
    int hops = 0, link = -1;
    bool done = false;
  };
  std::vector<Best> best(nodes_.size());
  using Entry = std::tuple<double, int, int>;  // bandwidth, -hops, -node: the largest comes first
  std::priority_queue<Entry> queue;
  best[static_cast<std::size_t>(from)].bandwidth = std::numeric_limits<double>::infinity();
  queue.emplace(std::numeric_limits<double>::infinity(), 0, -from);
  while (!queue.empty()) {
    const int at = -std::get<2>(queue.top());
    queue.pop();
    Best& here = best[static_cast<std::size_t>(at)];
    if (here.done) continue;
    here.done = true;
    const NodeKind kind = node(at).kind;
    if (at != from && (kind == NodeKind::gpu || kind == NodeKind::port)) continue;
    const bool of_others = kind == NodeKind::device && at != from && node(from).parent != at;
    for (const int l : out(at)) {
      if (of_others && node(link(l).to).parent != at) continue;
      const LinkKind by = link(l).kind;
      if (gpu_links && by != LinkKind::nvlink && by != LinkKind::xgmi) continue;
      Best& next = best[static_cast<std::size_t>(link(l).to)];
      const double bandwidth = std::min(here.bandwidth, link(l).bandwidth);
      const int hops = here.hops + 1;
      const bool better = bandwidth > next.bandwidth ||
                          (bandwidth == next.bandwidth && bandwidth > 0 && hops < next.hops);
      if (next.done || !better) continue;
      next = {bandwidth, hops, l, false};
      queue.emplace(bandwidth, -hops, -link(l).to);
    }
  }
  std::vector<Path> all(nodes_.size());
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    Path& p = all[static_cast<std::size_t>(n)];
    for (int at = n; at != from;) {
      const int l = best[static_cast<std::size_t>(at)].link;
      if (l < 0) break;
      p.links.push_back(l);
      p.latency += link(l).latency;
      at = link(l).from;
    }
    std::ranges::reverse(p.links);
    p.bandwidth = p.links.empty() && n != from ? 0 : best[static_cast<std::size_t>(n)].bandwidth;
    p.near = near(p, from, n);
  }
  return all;
}

Path Graph::path(int from, int to) const { return paths(from)[static_cast<std::size_t>(to)]; }

Near Graph::near(const Path& path, int from, int to) const {
  if (from == to) return Near::self;
  if (path.links.empty()) return Near::apart;
  int bridges = 0, roots = 0, domains = 0;
  bool gpu_links = false, pci = false;
  for (const int l : path.links) {
    const LinkKind kind = link(l).kind;
    gpu_links = gpu_links || kind == LinkKind::nvlink || kind == LinkKind::xgmi;
    pci = pci || kind == LinkKind::pci;
    if (link(l).to == to) break;
    const NodeKind through = node(link(l).to).kind;
    if (through == NodeKind::network) return Near::network;
    bridges += through == NodeKind::bridge ? 1 : 0;
    roots += through == NodeKind::root ? 1 : 0;
    domains += through == NodeKind::numa ? 1 : 0;
    // Parts that have no way to each other inside of their device meet at the processor.
    roots += through == NodeKind::device && kind == LinkKind::pci && node(to).parent == link(l).to;
  }
  for (const int end : {from, to}) domains += node(end).kind == NodeKind::numa ? 1 : 0;
  if (gpu_links && !pci && domains == 0) return Near::gpu_links;
  if (domains > 1) return Near::sys;
  if (domains == 1) return roots > 1 ? Near::node : Near::phb;
  if (roots > 0) return Near::phb;
  return bridges > 1 ? Near::pxb : Near::pix;
}

}  // namespace tutti::topology

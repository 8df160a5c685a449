// See text.h.
#include "topology/show/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"
#include "topology/nics.h"

namespace tutti::topology {
namespace {

/// The link by which a node hangs on what it is drawn in; nullptr where there is none.
const Link* upstream(const Graph& graph, int n) {
  for (const int l : graph.out(n)) {
    if (graph.link(l).to == graph.node(n).parent) return &graph.link(l);
  }
  return nullptr;
}

std::string what_of(const Graph& graph, int n) {
  const Node& node = graph.node(n);
  std::string text =
      node.kind == NodeKind::root     ? "PCI host bridge"
      : node.kind == NodeKind::bridge ? "PCI bridge"
      : node.kind == NodeKind::nic    ? "NIC"
      : node.kind == NodeKind::port   ? "port"
      : node.kind == NodeKind::device ? fmt::format("GPU in {} parts", node.members)
      : node.kind == NodeKind::gpu_switch
          ? fmt::format("NVSwitch{}",
                        node.members > 1 ? fmt::format(", {} of them", node.members) : "")
          : "";
  if (!node.model.empty() && node.kind != NodeKind::host) {
    text += (text.empty() ? "" : ", ") + node.model;
  }
  if (node.kind == NodeKind::gpu && node.bus) text += ", " + text_of(*node.bus);
  const Link* up = upstream(graph, n);
  if (up != nullptr && graph.node(up->to).kind == NodeKind::device) {
    text += fmt::format(", {} of the device", bandwidth_text(up->bandwidth, up->assumed));
  } else if (up != nullptr && (up->kind == LinkKind::pci || up->kind == LinkKind::network)) {
    text += fmt::format(", {} {}", name(up->kind), bandwidth_text(up->bandwidth, up->assumed));
  }
  if (!node.up) text += ", down";
  return text;
}

/// "NVLink x4 80 GB/s to gpu1, gpu2": links of a node that are not the tree's.
std::string other_links(const Graph& graph, int n) {
  std::map<std::string, std::vector<std::string>> targets;
  std::vector<std::string> order;
  for (const int id : graph.out(n)) {
    const Link& l = graph.link(id);
    const bool tree = l.to == graph.node(n).parent || graph.node(l.to).parent == n;
    if (tree && l.kind != LinkKind::c2c && l.kind != LinkKind::nvlink) continue;
    const std::string what =
        l.kind == LinkKind::socket
            ? fmt::format("{} {}", name(l.kind), bandwidth_text(l.bandwidth, l.assumed))
            : fmt::format("{} x{} {}", name(l.kind), l.lanes,
                          bandwidth_text(l.bandwidth, l.assumed));
    auto& all = targets[what];
    if (all.empty()) order.push_back(what);
    all.push_back(graph.node(l.to).name);
  }
  std::string text;
  for (const std::string& what : order) {
    text += fmt::format("; {} to {}", what, fmt::join(targets[what], ", "));
  }
  return text;
}

void add_tree(const Graph& graph, const std::vector<std::vector<int>>& children, int n, int depth,
              std::string& text) {
  const std::string what = what_of(graph, n);
  text +=
      fmt::format("{:{}}{}{}{}{}\n", "", 2 * depth, graph.node(n).name, what.empty() ? "" : "  ",
                  what, graph.node(n).kind == NodeKind::gpu_switch ? "" : other_links(graph, n));
  for (const int child : children[static_cast<std::size_t>(n)]) {
    add_tree(graph, children, child, depth + 1, text);
  }
}

}  // namespace

std::string bandwidth_text(double gigabytes, bool assumed) {
  const std::string number = gigabytes >= 99.5 || gigabytes == static_cast<int>(gigabytes)
                                 ? fmt::format("{:.0f}", gigabytes)
                                 : fmt::format("{:.3g}", gigabytes);
  return assumed ? fmt::format("({} GB/s)", number) : number + " GB/s";
}

std::string near_text(const Graph& graph, const Path& path) {
  if (path.near != Near::gpu_links) return std::string(name(path.near));
  int lanes = std::numeric_limits<int>::max();
  bool amd = false;
  for (const int l : path.links) {
    lanes = std::min(lanes, graph.link(l).lanes);
    amd = amd || graph.link(l).kind == LinkKind::xgmi;
  }
  return fmt::format("{}{}", amd ? "XG" : "NV", lanes);
}

std::string tree_text(const Graph& graph) {
  std::vector<std::vector<int>> children(graph.nodes().size());
  std::string text = fmt::format("{} ({})\n", graph.source, graph.format);
  for (int n = 0; n < static_cast<int>(graph.nodes().size()); ++n) {
    const int parent = graph.node(n).parent;
    if (parent >= 0) children[static_cast<std::size_t>(parent)].push_back(n);
  }
  for (int n = 0; n < static_cast<int>(graph.nodes().size()); ++n) {
    if (graph.node(n).parent < 0) add_tree(graph, children, n, 0, text);
  }
  for (const std::string& u : graph.unseen) text += fmt::format("not seen: {}\n", u);
  return text;
}

std::string matrix_text(const Graph& graph) {
  std::vector<int> columns = graph.gpus();
  const std::size_t gpus = columns.size();
  for (const int port : graph.all(NodeKind::port)) columns.push_back(port);
  constexpr std::size_t kMost = 1024;
  if (columns.size() > kMost) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("a matrix of {} GPUs and {} ports would have {} cells; it is made of {} "
                    "of them at most: --json has the graph",
                    gpus, columns.size() - gpus, columns.size() * columns.size(), kMost));
  }
  std::vector<std::string> heads;
  std::size_t width = 6;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Node& node = graph.node(columns[i]);
    const std::string host = graph.hosts() > 1 ? fmt::format("h{}.", node.host) : "";
    heads.push_back(i < gpus ? fmt::format("{}GPU{}", host, node.number)
                             : fmt::format("NIC{}", i - gpus));
    width = std::max(width, heads.back().size() + 2);
  }
  std::string text = fmt::format("{:{}}", "", width);
  for (const std::string& h : heads) text += fmt::format("{:<{}}", h, width);
  text += "NUMA\n";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto paths = graph.paths(columns[i]);
    text += fmt::format("{:<{}}", heads[i], width);
    for (const int to : columns) {
      text += fmt::format("{:<{}}", near_text(graph, paths[static_cast<std::size_t>(to)]), width);
    }
    int domain = columns[i];
    while (domain >= 0 && graph.node(domain).kind != NodeKind::numa) {
      domain = graph.node(domain).parent;
    }
    text += domain < 0 || graph.node(domain).number < 0
                ? "-\n"
                : fmt::format("{}\n", graph.node(domain).number);
  }
  if (columns.size() > gpus) text += "\n";
  for (std::size_t i = gpus; i < columns.size(); ++i) {
    text += fmt::format("{}: {}\n", heads[i], graph.node(columns[i]).name);
  }
  return text;
}

std::string explain_text(const Graph& graph, std::string_view wanted) {
  const int n = graph.find(wanted);
  if (n < 0) {
    std::string names;
    for (const int gpu : graph.gpus()) names += " " + graph.node(gpu).name;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("there is no '{}'; there {}", wanted,
                            names.empty() ? "are no GPUs" : "are" + names));
  }
  const Node& node = graph.node(n);
  std::string text = fmt::format("{}: {}{}\n", node.name, what_of(graph, n), other_links(graph, n));
  text += fmt::format("  said by {}\n", node.origin.text());
  std::string above;
  for (int p = node.parent; p >= 0; p = graph.node(p).parent) above += " < " + graph.node(p).name;
  if (!above.empty()) text += fmt::format("  on {}\n", above.substr(3));
  for (const NicChoice& c : nics_of_gpus(graph)) {
    if (c.gpu != n && c.port != n) continue;
    const std::string& gpu = graph.node(c.gpu).name;
    if (c.port < 0) {
      text += fmt::format("  {} has no port to other hosts\n", gpu);
      continue;
    }
    text += fmt::format("  {} uses {}: {}, {}", gpu, graph.node(c.port).name,
                        near_text(graph, c.path), bandwidth_text(c.path.bandwidth));
    std::size_t equals = 0;
    for (const auto& o : c.candidates) {
      equals += o.path.near == c.path.near && o.path.bandwidth == c.path.bandwidth ? 1 : 0;
    }
    text += equals > 1 ? fmt::format("; one of {} that are as near, and {} GPU(s) share it\n",
                                     equals, c.sharing)
                       : fmt::format("; the nearest, and {} GPU(s) share it\n", c.sharing);
    if (c.gpu != n) continue;
    std::string way = gpu;
    for (const int l : c.path.links) {
      const Link& link = graph.link(l);
      way += fmt::format(" -[{} {}]-> {}", name(link.kind),
                         bandwidth_text(link.bandwidth, link.assumed), graph.node(link.to).name);
    }
    text += fmt::format("    way: {}\n", way);
    for (std::size_t i = 1; i < std::min<std::size_t>(c.candidates.size(), 9); ++i) {
      text += fmt::format("    instead of {}: {}, {}\n", graph.node(c.candidates[i].port).name,
                          near_text(graph, c.candidates[i].path),
                          bandwidth_text(c.candidates[i].path.bandwidth));
    }
    if (c.candidates.size() > 9) text += fmt::format("    and {} more\n", c.candidates.size() - 9);
  }
  for (const Doubt& d : graph.doubts) {
    const std::size_t at = d.what.find(node.name);
    const std::size_t end = at + node.name.size();
    const bool whole =
        at != std::string::npos &&
        (end == d.what.size() || !std::isdigit(static_cast<unsigned char>(d.what[end])));
    if (whole) text += fmt::format("  not believed: {}\n", d.what);
  }
  return text;
}

}  // namespace tutti::topology

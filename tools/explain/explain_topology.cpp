// See explain_topology.h.
#include "tools/explain/explain_topology.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "collectives/model/lanes.h"
#include "core/counted.h"
#include "tools/topology_source.h"
#include "topology/nics.h"
#include "topology/show/text.h"

namespace tutti {
namespace {

using topology::Graph;

constexpr int kMostLanes = 16;

std::string order_text(const Graph& graph, const LaneOrder& lane) {
  std::string text;
  if (lane.port_in >= 0) text += graph.node(lane.port_in).name + " >";
  for (std::size_t i = 0; i < lane.gpus.size(); ++i) {
    text += fmt::format(" {}", graph.node(lane.gpus[i]).number);
    if (!lane.parents.empty() && lane.parents[i] >= 0) {
      text += fmt::format("<{}",
                          graph.node(lane.gpus[static_cast<std::size_t>(lane.parents[i])]).number);
    }
  }
  if (lane.port_out >= 0) text += " > " + graph.node(lane.port_out).name;
  return text;
}

/// "336 GB/s in 7 lanes of 48 GB/s": rings, as plans use them. "192 GB/s in 28 orders": trees.
std::string sum_text(const Lanes& found, bool equal) {
  const std::size_t n = found.lanes.size();
  std::string text = fmt::format("{} in {} {}{}", topology::bandwidth_text(found.bandwidth), n,
                                 equal ? "lane" : "order", n == 1 ? "" : "s");
  if (equal && n > 1) text += " of " + topology::bandwidth_text(found.lanes.front().bandwidth);
  if (found.best) return text + "; nothing can be added";
  text += fmt::format(", {:.0f} % of the {} that no {}s exceed",
                      std::floor(100 * found.bandwidth / found.at_most),
                      topology::bandwidth_text(found.at_most), equal ? "lane" : "order");
  if (found.stopped) text += "; the search has spent its two seconds";
  return text;
}

void print_lanes(const Graph& graph, const char* what, const Lanes& found, bool equal, double ms) {
  if (found.lanes.empty()) {
    fmt::print("{}: none; {}\n", what,
               graph.gpus().size() < 2 ? "there is one GPU" : "not all GPUs reach each other");
    return;
  }
  fmt::print("{}: {}; found in {:.0f} ms\n", what, sum_text(found, equal), ms);
  for (const LaneOrder& lane : found.lanes) {
    fmt::print("  {:>10}  {}\n", topology::bandwidth_text(lane.bandwidth), order_text(graph, lane));
  }
  if (found.full.empty()) return;
  fmt::print("  limited by");
  std::size_t shown = 0;
  for (const int l : found.full) {
    if (shown++ == 6) {
      fmt::print(" and {} more", found.full.size() - 6);
      break;
    }
    const topology::Link& link = graph.link(l);
    fmt::print("{} {} -> {} ({} {})", shown == 1 ? "" : ",", graph.node(link.from).name,
               graph.node(link.to).name, name(link.kind),
               topology::bandwidth_text(link.bandwidth, link.assumed));
  }
  fmt::print("\n");
}

void search(const Graph& graph, const char* what, const LanesRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const bool equal = request.shape == LanesRequest::Shape::ring;
  const int host = graph.hosts() == 1 ? 0 : -1;
  const Lanes found =
      equal ? find_equal_rings(graph, host, request) : find_lanes(graph, host, request);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  print_lanes(graph, what, found, equal, took.count());
  std::fflush(stdout);  // the next one may take two seconds
}

}  // namespace

void explain_topology(const std::string& file, bool several_hosts, bool cross_rails) {
  topology::Records records = topology_records(file);
  const Graph graph = topology_graph(records);
  warn_of_unlinked(graph,
                   "`tutti topo --file FILE --machine 8xH100 --xml` fills in what is missing");
  fmt::print("{} ({}): {}\n", graph.source, graph.format, counted(graph.gpus().size(), "GPU"));
  LanesRequest request;
  request.most_lanes = kMostLanes;
  search(graph, "rings", request);
  search(graph, "trees", {.shape = LanesRequest::Shape::tree});
  if (several_hosts) {
    request.several_hosts = true;
    request.cross_rails = cross_rails;
    search(graph, cross_rails ? "rings between hosts" : "rings between hosts, each on a rail",
           request);
  }
  for (const topology::NicChoice& c : nics_of_gpus(graph)) {
    if (c.port < 0) continue;
    fmt::print("{} uses {} ({}, {})\n", graph.node(c.gpu).name, graph.node(c.port).name,
               near_text(graph, c.path), topology::bandwidth_text(c.path.bandwidth));
  }
}

}  // namespace tutti

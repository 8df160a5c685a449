// Rings and trees on a topology: orders of GPUs that together use as much of the links as there is,
// with shared links counted. Each is a lane of a plan (NCCL: channel), with its share of the data.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "collectives/model/domains.h"
#include "topology/graph.h"

namespace tutti {

struct LanesRequest {
  enum class Shape { ring, tree };
  Shape shape = Shape::ring;
  bool several_hosts = false;  // a ring enters the host by a port and leaves it by one
  bool cross_rails = false;    // they may be different ones
  int most_lanes = 256;        // the largest
};

struct LaneOrder {
  std::vector<int> gpus;     // ring: the order, nodes of the graph; tree: as many parents below
  std::vector<int> parents;  // tree: of gpus[i], index into gpus; -1: the root
  int port_in = -1, port_out = -1;  // several hosts
  double bandwidth = 0;             // GB/s
};

struct Lanes {
  std::vector<LaneOrder> lanes;  // the largest first
  double bandwidth = 0;          // GB/s, of all
  double at_most = 0;            // GB/s; it is proved that no lanes carry more
  bool best = true;              // these carry as much
  bool stopped = false;          // the search's budget (budget.h) was spent before it had ended
  std::vector<int> full;         // links that are used whole: what limits it
  std::vector<double> used;      // GB/s, by link
};

/// Each with the share that suits it. The search does as much work as a core does in two seconds or
/// less; what it has found until then is the answer. For the GPUs of one host (`host`), or of all
/// (-1). Throws Error(invalid_argument) where there is none, or far more than a host has. The same
/// graph gives the same answer.
Lanes find_lanes(const topology::Graph& graph, int host, const LanesRequest& request);

/// Rings that all have the same share of the data, as lanes of a plan have: as few as carry the
/// most, and no more than `most_lanes`. One order may come several times.
Lanes find_equal_rings(const topology::Graph& graph, int host, const LanesRequest& request);

/// What rings in given orders could carry on this graph, each as much as the links allow.
double ring_bandwidth(const topology::Graph& graph, const std::vector<std::vector<int>>& orders,
                      const std::vector<std::pair<int, int>>& ports);

/// The orders of ranks for these lanes. `node_of_rank`: the GPU of each rank, all of them in the
/// lanes.
std::vector<Domains> orders_of(const Lanes& lanes, std::span<const int> node_of_rank);

/// Which ranks are near each other, read off the graph: GPUs that reach each other over their own
/// links are a domain; without such links, GPUs of a NUMA domain are, and so are cores of one
/// (`node_of_rank` may be NUMA domains).
Domains domains_of(const topology::Graph& graph, std::span<const int> node_of_rank);

}  // namespace tutti

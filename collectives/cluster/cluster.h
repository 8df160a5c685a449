// Equal hosts that a network joins, as what simulations need: which links a message from one rank
// to another uses, and how much they carry. Ranks are numbered host by host, in the order of GPUs.
//
// Hosts that are equal do the same: a simulation may look at a few of them (`unit`), with a message
// to any other host counted as one to the host in the same place of the unit.
#pragma once

#include <string>
#include <vector>

#include "collectives/model/gpu_constants.h"
#include "collectives/model/simulate.h"
#include "topology/graph.h"
#include "topology/network.h"

namespace tutti::cluster {

struct GpuRoute {
  GpuWay way = GpuWay::gpu_links;
  std::vector<int> links;  // of the first host, and, of routes to others, ...
  std::vector<int> far;    // ... of the other one
};

class Cluster {
 public:
  /// `host` may have GPUs of several hosts that share NVLink switches: then they count as one.
  /// `used`: GPUs of each host that have ranks; 0: all. Throws Error(invalid_argument) where there
  /// are no GPUs, or no way between hosts.
  Cluster(const topology::Graph& host, int hosts, const topology::Network& network,
          const GpuConstants& constants, int used = 0);

  /// The same with another number of hosts. More than one stays so.
  Cluster with_hosts(int hosts) const {
    Cluster c = *this;
    c.hosts_ = hosts;
    return c;
  }
  int hosts() const { return hosts_; }
  int ranks_of_a_host() const { return static_cast<int>(gpus_.size()); }
  int ranks() const { return hosts_ * ranks_of_a_host(); }
  int ports() const { return ports_; }
  const topology::Network& network() const { return network_; }
  const GpuConstants& constants() const { return constants_; }
  /// GB/s of a host's ports together, one way.
  double port_bandwidth() const { return ports_ * port_rate_; }

  /// The ranks of a host, in groups: those with GPUs that are parts of one device. Most GPUs are
  /// whole devices, so their ranks are alone.
  const std::vector<std::vector<int>>& devices() const { return devices_; }
  /// Between GPUs of a host, and from one on a host to one on another.
  const GpuRoute& inside(int from, int to) const { return inside_[at(from, to)]; }
  GpuRoute across(int from, int to) const;
  /// us from the end of sending a message to its being seen, as a route without links.
  Scenario::Route delay(GpuProtocol p, GpuWay way) const;
  /// LL128 where rings stay on links of the GPUs' own.
  bool possible(GpuProtocol p) const;
  /// Whether such links join each two GPUs of a host.
  bool all_linked() const { return all_linked_; }

  /// Links of a host, and then those of a leaf switch (its way up, and down), in GB/s.
  const std::vector<double>& capacities() const { return capacities_; }
  const std::vector<std::string>& names() const { return names_; }
  double leaf_bandwidth() const;
  /// GB/s of data over one of capacities().
  double data_rate(std::size_t link, GpuProtocol p) const;

  /// GB/s of a GPU's links to a switch that reduces; 0: there is none that all GPUs share.
  double switch_bandwidth() const { return switch_; }
  /// Orders of a host's ranks for rings, one for each lane of the plan.
  const std::vector<std::vector<int>>& orders() const { return orders_; }

 private:
  std::size_t at(int from, int to) const {
    return static_cast<std::size_t>(from) * gpus_.size() + static_cast<std::size_t>(to);
  }
  bool rings_are_linked() const;
  void find_ports();
  void add_pci(int gpu, std::vector<int>& out, std::vector<int>& in) const;

  topology::Graph graph_;
  int hosts_;
  topology::Network network_;
  GpuConstants constants_;
  std::vector<int> gpus_;  // nodes of the graph
  std::vector<std::vector<int>> devices_;
  int ports_ = 0;
  double port_rate_ = 0;
  std::vector<GpuRoute> inside_;
  std::vector<std::vector<int>> out_, in_;  // links to the network and from it, by GPU
  std::vector<double> capacities_;
  std::vector<std::string> names_;
  std::vector<std::vector<int>> orders_;
  double switch_ = 0;
  double ll_ = 0;               // GB/s of data that a link gets from a GPU by LL, at most
  std::size_t first_port_ = 0;  // of capacities_
  bool ll128_ = true, peers_ = true, all_linked_ = true;
};

}  // namespace tutti::cluster

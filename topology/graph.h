// A machine, or several, as one directed graph of links and their rates. Discovery and files make
// it (build.h). The search for rings and trees, predictions and pictures read it. A link is one
// direction of a wire. It is also the resource that its users share: path(a, b) names the links,
// and two paths that name the same link disturb each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/records.h"

namespace tutti::topology {

enum class NodeKind : std::uint8_t {
  host,    // no links; its nodes name it
  numa,    // a NUMA domain: cores and their memory
  root,    // a PCI host bridge
  bridge,  // a PCI switch, or one port of it
  device,  // a divided GPU: its parts are GPUs, and share its links and its memory
  gpu,
  gpu_switch,  // all NVSwitches of a host, which share their load, as one
  nic,
  port,     // of a NIC: the plug of a network
  network,  // switches between hosts
};
enum class LinkKind : std::uint8_t { nvlink, xgmi, c2c, pci, socket, network, inside };

std::string_view name(NodeKind kind);
std::string_view name(LinkKind kind);

struct Node {
  NodeKind kind = NodeKind::host;
  std::string name;   // "gpu3", "numa1", "mlx5_0", "0000:81:00.0"; of several hosts "h2.gpu3"
  std::string model;  // its name for people, if known
  int host = 0;
  int number = -1;    // gpu: NCCL's dev; numa: the system's number; port: NCCL's dev
  int parent = -1;    // the node around it in pictures
  int members = 1;    // switches in a gpu_switch
  bool up = true;     // port: connected
  std::string cores;  // numa: its cores, as a mask (cpu_mask.h); "" if not known
  Maybe<BusId> bus;
  Origin origin;
};

struct Link {
  int from = 0, to = 0;
  LinkKind kind = LinkKind::inside;
  int lanes = 1;         // its NVLink or xGMI links; lanes of PCI
  double bandwidth = 0;  // GB/s that transfers reach, in this direction
  double latency = 0;    // ns
  bool assumed = false;  // no record has the bandwidth: it is the model's, or usual
  Origin origin;
};

/// How near two nodes are, in the words of nvidia-smi; nearest first.
enum class Near : std::uint8_t { self, gpu_links, pix, pxb, phb, node, sys, network, apart };
std::string_view name(Near near);

struct Path {
  std::vector<int> links;  // in order; none from a node to itself
  double bandwidth = 0;    // of the narrowest
  double latency = 0;      // ns, all together
  Near near = Near::apart;
};

class Graph {
 public:
  std::string source, format;
  std::vector<Doubt> doubts;        // the repairs
  std::vector<std::string> unseen;  // what the source cannot tell

  int add(Node node);
  /// Adds both directions. They may differ; a direction that carries nothing is no link.
  void connect(int a, int b, Link there, Link back);
  void connect(int a, int b, const Link& both) { connect(a, b, both, both); }

  void set_members(int n, int members) { nodes_[static_cast<std::size_t>(n)].members = members; }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Link>& links() const { return links_; }
  const Node& node(int n) const { return nodes_[static_cast<std::size_t>(n)]; }
  const Link& link(int l) const { return links_[static_cast<std::size_t>(l)]; }
  const std::vector<int>& out(int n) const { return out_[static_cast<std::size_t>(n)]; }
  int hosts() const;

  /// In the order in which NCCL numbers them, hosts one after the other.
  std::vector<int> all(NodeKind kind) const;
  std::vector<int> gpus() const { return all(NodeKind::gpu); }
  /// The node of a name, or of "gpu3", "numa1", ...; -1 if there is none.
  int find(std::string_view name) const;

  /// The widest way; of equally wide ones, the way with the fewest links. Between GPUs a way over
  /// their own links, if there is one. GPUs and ports pass nothing on. Devices pass on only data
  /// for their parts, or from them.
  Path path(int from, int to) const;
  /// To all nodes at once, by node.
  std::vector<Path> paths(int from) const;
  /// The rate in GB/s at which data can leave a node over all its links.
  double bandwidth_out(int n) const;

 private:
  std::vector<Path> paths(int from, bool gpu_links) const;
  Near near(const Path& path, int from, int to) const;

  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<std::vector<int>> out_;
};

}  // namespace tutti::topology

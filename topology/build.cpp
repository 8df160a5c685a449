// From records to the graph. What no record says is taken from the models (constants.h), and marked
// as assumed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "topology/check.h"
#include "topology/constants.h"
#include "topology/discover.h"
#include "topology/divided.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

// Inside a processor, nothing is as narrow as what leads to it; NCCL takes the same number.
constexpr double kInside = 5000;
// Of PCI links that nobody knows anything of: generation 4, 16 lanes.
constexpr double kUsualTransfers = 16;
constexpr int kUsualWidth = 16;
// An NVLink of an unknown model: those of V100, A100 and H100 reach about as much.
constexpr double kUsualGpuLink = 20;
// Processors that are linked to all others: no machine has more, and all pairs would be many.
constexpr std::size_t kMostSockets = 64;
// Switches that belong to no host.
constexpr int kRack = -1;

class Builder {
 public:
  explicit Builder(const Records& records) : r_(records), divided_(divided_gpus(records)) {
    graph_.source = records.source;
    graph_.format = records.format;
    graph_.doubts = records.doubts;
    graph_.unseen = records.unseen;
    several_ = std::max<std::size_t>(1, records.hosts.size()) > 1;
    assume_transfers();
  }

  Graph build() {
    add_hosts();
    add_processors();
    for (const DividedGpu& device : divided_) {
      for (const std::size_t part : device.parts) device_of_[static_cast<int>(part)] = &device;
    }
    for (std::size_t i = 0; i < r_.devices.size(); ++i) add_device(i);
    for (std::size_t i = 0; i < r_.devices.size(); ++i) {
      if (r_.devices[i].gpu) add_gpu_links(i);
    }
    for (auto& [key, both] : between_) {
      // Of devices in parts, one part says it, and maybe none at the other end.
      for (const int end : {std::get<0>(key), std::get<1>(key)}) {
        if (graph_.node(end).kind != NodeKind::device) continue;
        if (both.first.bandwidth <= 0) both.first = both.second;
        if (both.second.bandwidth <= 0) both.second = both.first;
      }
      graph_.connect(std::get<0>(key), std::get<1>(key), both.first, both.second);
    }
    return std::move(graph_);
  }

 private:
  std::string prefix(int host) const { return several_ ? fmt::format("h{}.", host) : ""; }

  /// Unique names, as the explanations of things go by them.
  std::string unique(std::string wanted) {
    wanted = printable(wanted);
    if (names_.insert(wanted).second) return wanted;
    for (int n = ++copies_[wanted] + 1;; n = ++copies_[wanted] + 1) {
      const std::string other = fmt::format("{}#{}", wanted, n);
      if (names_.insert(other).second) return other;
    }
  }

  void add_hosts() {
    const std::size_t count = std::max<std::size_t>(1, r_.hosts.size());
    for (std::size_t h = 0; h < count; ++h) {
      Node n;
      n.kind = NodeKind::host;
      n.host = static_cast<int>(h);
      n.number = n.host;
      n.name = unique(several_ ? fmt::format("h{}", h) : "host");
      if (h < r_.hosts.size()) n.model = printable(r_.hosts[h]);
      n.origin = {r_.source, 0};
      hosts_.push_back(graph_.add(n));
    }
  }

  void add_processors() {
    std::vector<CpuRecord> cpus = r_.cpus;
    if (cpus.empty()) cpus.emplace_back();
    for (const CpuRecord& cpu : cpus) {
      Node n;
      n.kind = NodeKind::numa;
      n.host = std::clamp(cpu.host, 0, static_cast<int>(hosts_.size()) - 1);
      n.number = cpu.numa;
      n.name = unique(fmt::format("{}numa{}", prefix(n.host),
                                  cpu.numa < 0 ? static_cast<int>(processors_.size()) : cpu.numa));
      n.model = printable(cpu.vendor.empty() ? cpu.arch : cpu.vendor);
      n.cores = cpu.affinity;
      n.parent = hosts_[static_cast<std::size_t>(n.host)];
      n.origin = cpu.origin;
      processors_.push_back(graph_.add(n));
    }
    std::map<int, std::vector<std::size_t>> of_host;
    for (std::size_t i = 0; i < processors_.size(); ++i) {
      of_host[graph_.node(processors_[i]).host].push_back(i);
    }
    for (const auto& [host, own] : of_host) join_sockets(cpus, own);
  }

  void join_sockets(const std::vector<CpuRecord>& cpus, const std::vector<std::size_t>& own) {
    // Of very many, each to the first one.
    const std::size_t centres = own.size() > kMostSockets ? 1 : own.size();
    for (std::size_t i = 0; i < centres; ++i) {
      const CpuRecord& cpu = cpus[own[i]];
      for (std::size_t j = i + 1; j < own.size(); ++j) {
        Link l;
        l.kind = LinkKind::socket;
        l.bandwidth =
            socket_bandwidth(cpu.arch, cpu.vendor, cpu.family.value_or(0), cpu.model.value_or(0));
        l.latency = kSocketHop;
        l.assumed = true;
        l.origin = cpu.origin;
        graph_.connect(processors_[own[i]], processors_[own[j]], l);
      }
    }
  }

  int processor_of(const DeviceRecord& d) const {
    const int last = static_cast<int>(processors_.size()) - 1;
    return processors_[static_cast<std::size_t>(std::clamp(d.cpu, 0, last))];
  }

  void add_device(std::size_t index) {
    const DeviceRecord& d = r_.devices[index];
    const bool below = d.parent >= 0 && d.parent < static_cast<int>(index);
    Node n;
    n.parent = below ? nodes_.at(d.parent) : processor_of(d);
    n.host = graph_.node(n.parent).host;
    n.bus = d.bus;
    n.origin = d.origin;
    n.kind = d.gpu                          ? NodeKind::gpu
             : d.has_nic || !d.nets.empty() ? NodeKind::nic
             : d.host_bridge                ? NodeKind::root
                                            : NodeKind::bridge;
    const std::string address = d.bus ? text_of(*d.bus) : "";
    if (d.gpu) {
      n.number = d.gpu->dev;
      if (d.bus) gpus_.try_emplace({n.host, *d.bus}, static_cast<int>(index));
      n.name = unique(fmt::format("{}gpu{}", prefix(n.host), d.gpu->dev));
      const GpuModel& model = model_of(d);
      n.model = !d.gpu->model.empty() ? printable(d.gpu->model) : std::string(model.name);
    } else if (d.host_bridge) {
      n.name = unique(fmt::format("{}root{}", prefix(n.host), roots_++));
    } else if (n.kind == NodeKind::nic) {
      n.name = unique(prefix(n.host) + (address.empty() ? "nic" : "nic " + address));
    } else {
      n.name = unique(prefix(n.host) + (address.empty() ? "bridge" : address));
    }
    const auto device = device_of_.find(static_cast<int>(index));
    Link up = upstream(d);
    if (device != device_of_.end()) {
      n.parent = device_node(*device->second, n, up);
      const bool shared = device->second->to_part.bandwidth == 0;
      const double share = up.bandwidth / static_cast<double>(device->second->parts.size());
      up = device->second->to_part;
      if (shared) up.bandwidth = share;
    }
    const int node = graph_.add(n);
    nodes_[static_cast<int>(index)] = node;
    linked_[static_cast<int>(index)] = device != device_of_.end() ? n.parent : node;
    graph_.connect(n.parent, node, up);
    if (n.kind == NodeKind::nic) add_ports(d, node);
  }

  /// The device that a part belongs to, which hangs where the part would, by its PCI link.
  int device_node(const DividedGpu& device, const Node& part, const Link& up) {
    const auto [known, is_new] = device_nodes_.try_emplace(&device, -1);
    if (!is_new) return known->second;
    Node n = part;
    n.kind = NodeKind::device;
    n.number = -1;
    n.members = static_cast<int>(device.parts.size());
    n.bus = part.bus->slot();
    n.name = unique(prefix(n.host) + text_of(*n.bus));
    n.model = n.model.substr(0, n.model.find(" MIG"));
    known->second = graph_.add(n);
    graph_.connect(n.parent, known->second, up);
    return known->second;
  }

  /// GT/s of links without a record: nobody puts a device behind a slower link than its own.
  void assume_transfers() {
    transfers_.assign(r_.devices.size(), 0);
    for (std::size_t i = r_.devices.size(); i-- > 0;) {
      const DeviceRecord& d = r_.devices[i];
      double& own = transfers_[i];
      if (d.speed && std::isfinite(*d.speed) && *d.speed > 0) {
        own = std::min(*d.speed, 1024.0);
      } else if (d.gpu && model_of(d).pci_speed > 0) {
        own = model_of(d).pci_speed;
      } else {
        own = std::max(own, kUsualTransfers);
        double ports = 0;
        for (const NetRecord& n : d.nets) ports += static_cast<double>(n.speed.value_or(0)) / 8000;
        while (own < 64 && pci_bandwidth(own, kUsualWidth) < 0.9 * ports) own *= 2;
      }
      if (d.parent < 0 || d.parent >= static_cast<int>(i)) continue;
      double& above = transfers_[static_cast<std::size_t>(d.parent)];
      above = std::max(above, own);
    }
  }

  /// A device's own PCI link, to what is above it.
  Link upstream(const DeviceRecord& d) const {
    Link l;
    l.origin = d.origin;
    l.kind = d.bus ? LinkKind::pci : LinkKind::inside;
    l.latency = kPciHop;
    const bool inside = !d.bus || d.host_bridge || d.pci_class >> 8 == 0x0600;
    if (inside) {
      l.bandwidth = kInside;
      l.latency = d.host_bridge ? 0 : kPciHop;
      l.assumed = true;
      return l;
    }
    const bool speed = d.speed && std::isfinite(*d.speed) && *d.speed > 0;
    const bool width = d.width && *d.width > 0;
    const double transfers = transfers_[static_cast<std::size_t>(&d - r_.devices.data())];
    l.lanes = width ? std::min(*d.width, 64) : kUsualWidth;
    l.bandwidth = pci_bandwidth(transfers, l.lanes);
    l.assumed = !speed || !width;
    return l;
  }

  void add_ports(const DeviceRecord& d, int nic) {
    for (const NetRecord& net : d.nets) {
      Node n;
      n.kind = NodeKind::port;
      n.host = graph_.node(nic).host;
      n.number = net.dev;
      n.name = unique(prefix(n.host) + (net.name.empty() ? fmt::format("net{}", net.dev)
                                        : net.port > 1   ? fmt::format("{}:{}", net.name, net.port)
                                                         : net.name));
      n.parent = nic;
      n.up = net.up;
      n.bus = d.bus;
      n.origin = net.origin;
      const int port = graph_.add(n);
      Link l;
      l.kind = LinkKind::network;
      const bool said = net.speed && *net.speed > 0;
      l.bandwidth = static_cast<double>(said ? *net.speed : kUsualPort) / 8000;
      l.latency =
          net.latency && *net.latency > 0 && *net.latency < 1e6 ? *net.latency * 1000 : kPortHop;
      l.assumed = !said;
      l.origin = net.origin;
      graph_.connect(nic, port, l);
    }
  }

  // --- GPU links ---------------------------------------------------------------------------------

  double reached(const DeviceRecord& d, const GpuLinkRecord& l, bool& assumed) const {
    const GpuModel& model = model_of(d);
    if (model.reached > 0) return model.reached;
    assumed = true;
    return l.kind == GpuLinkRecord::Kind::xgmi ? 24 : kUsualGpuLink;
  }

  int target_gpu(int host, const BusId& bus) const {
    const auto at = gpus_.find({host, bus});
    return at == gpus_.end() ? -1 : at->second;
  }

  void add_gpu_links(std::size_t index) {
    const DeviceRecord& d = r_.devices[index];
    if (d.gpu->mig) return;  // the driver gives its parts none
    const int gpu = linked_.at(static_cast<int>(index));
    const int host = graph_.node(gpu).host;
    double to_switches = 0;
    std::int64_t lanes = 0;
    int domain = host;
    Link through;
    for (const GpuLinkRecord& record : d.gpu->links) {
      const std::int64_t count = std::clamp<std::int64_t>(record.count, 0, 1000);
      if (count == 0) continue;
      Link l;
      l.origin = record.origin;
      l.latency = kGpuLinkHop;
      l.lanes = static_cast<int>(count);
      if (record.kind == GpuLinkRecord::Kind::c2c) {
        l.kind = LinkKind::c2c;
        l.assumed = record.bandwidth <= 0;
        l.bandwidth =
            static_cast<double>(count) *
            (l.assumed ? kC2cLink
                       : static_cast<double>(std::min<std::int64_t>(record.bandwidth, 10'000'000)) /
                             1000);
        graph_.connect(gpu, domain_above(gpu), l);
        continue;
      }
      l.kind = record.kind == GpuLinkRecord::Kind::xgmi ? LinkKind::xgmi : LinkKind::nvlink;
      l.bandwidth = static_cast<double>(count) * reached(d, record, l.assumed);
      if (!record.target) continue;
      const int other = target_gpu(host, *record.target);
      if (other >= 0) {
        if (!r_.devices[static_cast<std::size_t>(other)].gpu->mig) {
          connect_gpus(gpu, linked_.at(other), l);
        }
      } else if (record.target_class == 0x068001) {
        graph_.connect(gpu, domain_above(gpu), l);  // to the processor: POWER
      } else if (record.target_class == 0x068000 || record.target->is_nameless_switch()) {
        to_switches += l.bandwidth;
        lanes += count;
        // Hosts of a rack share their switches, and those have no address on any of them.
        if (several_ && record.target->is_nameless_switch()) domain = kRack;
        switches_[domain].insert(*record.target);
        through = l;
      }
    }
    if (lanes == 0) return;
    through.bandwidth = to_switches;
    through.lanes = static_cast<int>(lanes);
    const int node = gpu_switch(domain, host);
    graph_.connect(gpu, node, through);
    graph_.set_members(node, static_cast<int>(switches_[domain].size()));
  }

  int domain_above(int node) const {
    while (graph_.node(node).kind != NodeKind::numa) node = graph_.node(node).parent;
    return node;
  }

  /// Each direction as the GPU says from which it goes. Each part of a divided GPU says what the
  /// device has, so that counts once, and nothing leads from a device to itself.
  void connect_gpus(int from, int to, const Link& link) {
    if (from == to) return;
    auto& both = between_[{std::min(from, to), std::max(from, to), link.kind}];
    Link& known = from < to ? both.first : both.second;
    if (link.bandwidth > known.bandwidth) known = link;
  }

  int gpu_switch(int domain, int host) {
    const auto known = switch_nodes_.find(domain);
    if (known != switch_nodes_.end()) return known->second;
    Node n;
    n.kind = NodeKind::gpu_switch;
    n.host = host;
    n.name = unique((domain == kRack ? "" : prefix(host)) + "nvswitch");
    n.parent = domain == kRack ? -1 : hosts_[static_cast<std::size_t>(host)];
    n.origin = {r_.source, 0};
    return switch_nodes_[domain] = graph_.add(n);
  }

  const Records& r_;
  const std::vector<DividedGpu> divided_;
  std::map<int, const DividedGpu*> device_of_;  // by index of the part
  std::map<const DividedGpu*, int> device_nodes_;
  std::map<int, int> linked_;  // of GPUs: the node that has their links
  Graph graph_;
  bool several_ = false;
  int roots_ = 0;
  std::set<std::string> names_;
  std::map<std::string, int> copies_;
  std::vector<int> hosts_, processors_;
  std::vector<double> transfers_;              // GT/s of devices' links
  std::map<int, int> nodes_;                   // of devices
  std::map<std::pair<int, BusId>, int> gpus_;  // devices, by host and address
  std::map<int, std::set<BusId>> switches_;
  std::map<int, int> switch_nodes_;
  std::map<std::tuple<int, int, LinkKind>, std::pair<Link, Link>> between_;
};

}  // namespace

Graph build(const Records& records) { return Builder(records).build(); }

}  // namespace tutti::topology

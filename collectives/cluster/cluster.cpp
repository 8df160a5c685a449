// See cluster.h.
#include "collectives/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/cluster/orders.h"
#include "core/counted.h"
#include "core/error.h"
#include "topology/abilities.h"
#include "topology/constants.h"
#include "topology/describe.h"
#include "topology/divided.h"
#include "topology/nics.h"

namespace tutti::cluster {
namespace {

using topology::Graph;
using topology::Near;
using topology::NodeKind;

constexpr std::size_t kMostLanes = 16;
/// More would take minutes and tens of GiB to simulate.
constexpr int kMostRanks = 200'000;

/// The model's name as the table of GPUs has it.
std::string_view model_of(const topology::Node& gpu) {
  const topology::GpuModel* model = topology::find_gpu_model(gpu.model);
  return model == nullptr ? std::string_view(gpu.model) : model->name;
}

/// Whether other GPUs reach its memory over PCI. MIG's instances are reached by the host alone.
bool has_peers(const Graph& graph, int gpu) {
  for (const int l : graph.out(gpu)) {
    const bool in_device = graph.node(graph.link(l).to).kind == NodeKind::device;
    if (in_device && graph.link(l).kind == topology::LinkKind::pci) return false;
  }
  return topology::has_peer_access(model_of(graph.node(gpu)));
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace

Cluster::Cluster(const Graph& host, int hosts, const topology::Network& network,
                 const GpuConstants& constants, int used)
    : graph_(host), hosts_(hosts), network_(network), constants_(constants), gpus_(host.gpus()) {
  if (gpus_.empty()) refuse(fmt::format("{} has no GPUs", host.source));
  if (used > static_cast<int>(gpus_.size())) {
    refuse(fmt::format("{} has {}, and a host is to use {}", host.source,
                       counted(gpus_.size(), "GPU"), used));
  }
  if (used > 0) gpus_.resize(static_cast<std::size_t>(used));
  if (static_cast<double>(hosts) * static_cast<double>(gpus_.size()) > kMostRanks) {
    refuse(fmt::format("{} with {} each are more than {} ranks", counted(hosts, "host"),
                       counted(gpus_.size(), "GPU"), kMostRanks));
  }
  devices_ = topology::by_device(graph_, gpus_);
  for (const topology::Link& l : graph_.links()) {
    capacities_.push_back(l.bandwidth);
    names_.push_back(fmt::format("{} > {}", graph_.node(l.from).name, graph_.node(l.to).name));
  }
  const int staging = static_cast<int>(capacities_.size());
  capacities_.push_back(constants.staging);
  names_.emplace_back("memory of the host");
  switch_ = 1e300;
  for (const int a : gpus_) {
    const auto paths = graph_.paths(a);
    const bool peers = has_peers(graph_, a);
    for (const int b : gpus_) {
      GpuRoute route;
      const topology::Path& path = paths[static_cast<std::size_t>(b)];
      if (a != b && path.near == Near::apart) {
        refuse(fmt::format("{} and {} do not reach each other", graph_.node(a).name,
                           graph_.node(b).name));
      }
      route.links = path.links;
      if (a != b && path.near != Near::gpu_links) {
        route.way = peers ? GpuWay::pci : GpuWay::staged;
        if (!peers) route.links.push_back(staging);
        peers_ = peers_ && peers;
        all_linked_ = false;
      }
      const bool by_switch = a == b || (path.near == Near::gpu_links && path.links.size() == 2);
      switch_ = std::min(switch_, by_switch ? (a == b ? 1e300 : path.bandwidth) : 0.0);
      inside_.push_back(std::move(route));
    }
    if (!topology::switch_reduces(model_of(graph_.node(a)))) switch_ = 0;
    if (!topology::has_ll128(model_of(graph_.node(a)))) ll128_ = false;
  }
  if (gpus_.size() < 3) switch_ = 0;  // two GPUs may be joined directly, and gain nothing
  const double links = std::max(graph_.bandwidth_out(gpus_.front()), 1.0);
  ll_ = constants.gpu_ll * std::max(1.0, links / 240);
  find_ports();
  orders_ = widest_orders(*this, kMostLanes);
  ll128_ = ll128_ && rings_are_linked();
}

void Cluster::find_ports() {
  if (hosts_ == 1) return;
  const auto k = gpus_.size();
  std::map<int, int> index;  // of ports of the graph
  std::vector<int> of_gpu(k);
  if (network_.ports > 0 || network_.rate > 0) {
    // The description of the network counts, and GPUs share its ports evenly.
    ports_ = network_.ports > 0 ? network_.ports : static_cast<int>(k);
    port_rate_ = network_.rate / 8;
    if (network_.ports == 0) {
      const auto known = topology::data_ports(graph_, 0);
      if (!known.empty()) ports_ = static_cast<int>(known.size());
    }
  }
  const auto choices = topology::nics_of_gpus(graph_);
  if (ports_ == 0) {
    for (std::size_t i = 0; i < k; ++i) {
      const auto choice = std::ranges::find(choices, gpus_[i], &topology::NicChoice::gpu);
      if (choice == choices.end() || choice->port < 0) {
        refuse(
            fmt::format("{} has no port to other hosts; --network \"8x400G\" says which there "
                        "are",
                        graph_.node(gpus_[i]).name));
      }
      of_gpu[i] = index.emplace(choice->port, static_cast<int>(index.size())).first->second;
      double rate = 0;
      for (const int l : graph_.out(choice->port)) {
        rate = std::max(rate, graph_.link(l).bandwidth);
      }
      port_rate_ = port_rate_ == 0 ? rate : std::min(port_rate_, rate);
    }
    // GPUs with several ports each use them all.
    const auto all = topology::data_ports(graph_, 0);
    ports_ = static_cast<int>(index.size());
    if (all.size() > k && index.size() == k) port_rate_ *= static_cast<double>(all.size() / k);
  } else {
    const int own = std::min(ports_, static_cast<int>(k));
    if (ports_ > own) port_rate_ *= static_cast<double>(ports_) / own;
    for (std::size_t i = 0; i < k; ++i) of_gpu[i] = static_cast<int>(i) * own / static_cast<int>(k);
    ports_ = own;
  }
  port_rate_ *= network_.efficiency;
  const int staging = static_cast<int>(graph_.links().size());
  const int first = static_cast<int>(capacities_.size());
  first_port_ = capacities_.size();
  for (int p = 0; p < ports_; ++p) {
    capacities_.push_back(port_rate_);
    names_.push_back(fmt::format("port{} out", p));
    capacities_.push_back(port_rate_);
    names_.push_back(fmt::format("port{} in", p));
  }
  for (std::size_t i = 0; i < k; ++i) {
    auto& out = out_.emplace_back();
    auto& in = in_.emplace_back();
    if (!index.empty()) {
      const auto choice = std::ranges::find(choices, gpus_[i], &topology::NicChoice::gpu);
      // The network's rate stands for the port's own link.
      for (const int l : choice->path.links) {
        if (graph_.link(l).to != choice->port) out.push_back(l);
      }
      for (const int l : graph_.path(choice->port, gpus_[i]).links) {
        if (graph_.link(l).from != choice->port) in.push_back(l);
      }
    } else {
      add_pci(gpus_[i], out, in);
    }
    // Nor do NICs reach such a GPU's memory. It counts where data leave: hosts that stand for all
    // others have a link once on a way.
    if (!has_peers(graph_, gpus_[i])) out.push_back(staging);
    out.push_back(first + 2 * of_gpu[i]);
    in.push_back(first + 2 * of_gpu[i] + 1);
  }
}

/// Where ports are is not known, but that a GPU reaches them by PCI, as it does GPUs without links
/// of their own; unless it has a way to its processor beside that.
void Cluster::add_pci(int gpu, std::vector<int>& out, std::vector<int>& in) const {
  for (const int l : graph_.out(gpu)) {
    if (graph_.link(l).kind == topology::LinkKind::c2c) return;
  }
  // A part of a divided GPU goes to its device first, which has the PCI link.
  for (int at = gpu; at == gpu || graph_.node(at).kind == NodeKind::device;) {
    const int above = graph_.node(at).parent;
    const auto add = [&](int from, int to, std::vector<int>& links) {
      for (const int l : graph_.out(from)) {
        const topology::LinkKind kind = graph_.link(l).kind;
        const bool of_device = graph_.node(above).kind == NodeKind::device;
        if (graph_.link(l).to == to && (of_device || kind == topology::LinkKind::pci)) {
          links.push_back(l);
        }
      }
    };
    add(at, above, out);
    add(above, at, in);
    at = above;
  }
}

GpuRoute Cluster::across(int from, int to) const {
  return {GpuWay::network, out_[static_cast<std::size_t>(from)], in_[static_cast<std::size_t>(to)]};
}

bool Cluster::rings_are_linked() const {
  const auto is_linked = [&](int from, int to) {
    return inside(from, to).way == GpuWay::gpu_links;
  };
  return std::ranges::all_of(orders_, [&](const std::vector<int>& order) {
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (!is_linked(order[i - 1], order[i])) return false;
    }
    return hosts_ > 1 || is_linked(order.back(), order.front());
  });
}

Scenario::Route Cluster::delay(GpuProtocol p, GpuWay way) const {
  Scenario::Route route;
  route.latency = constants_.message(p, way);
  if (way != GpuWay::network) return route;
  route.latency += network_.latency;
  // The thread that drives the network passes whole slices on.
  if (p == GpuProtocol::simple) route.slice = constants_.slice * 1024;
  route.slice_rate = port_rate_ * 1000;
  return route;
}

double Cluster::data_rate(std::size_t link, GpuProtocol p) const {
  const bool port = first_port_ > 0 && link >= first_port_;
  const bool alone = port && p == GpuProtocol::ll128 && gpus_.size() == 1;
  const double rate = capacities_[link] * (alone ? constants_.alone_ll128 : constants_.data(p));
  if (p != GpuProtocol::ll) return rate;
  return std::min(rate, port ? constants_.port_ll : ll_);
}

bool Cluster::possible(GpuProtocol p) const {
  if (p == GpuProtocol::copy) return hosts_ == 1 && peers_;
  return p != GpuProtocol::ll128 || ll128_;
}

double Cluster::leaf_bandwidth() const {
  return network_.leaf * port_bandwidth() / network_.oversubscription;
}

}  // namespace tutti::cluster

// See altered_machine.h.
#include "laboratory/predict/altered_machine.h"

#include <algorithm>

#include "topology/constants.h"
#include "topology/nics.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::Link;
using topology::LinkKind;

/// A copy, of whose links and nodes some are other ones.
template <class OfLink, class OfNode>
Graph copy(const Graph& host, OfLink of_link, OfNode of_node) {
  Graph g;
  g.source = host.source;
  g.format = host.format;
  g.doubts = host.doubts;
  g.unseen = host.unseen;
  for (topology::Node n : host.nodes()) {
    of_node(n);
    g.add(n);
  }
  for (Link l : host.links()) {
    of_link(l);
    Link none;
    none.kind = l.kind;
    g.connect(l.from, l.to, l, none);
  }
  return g;
}

}  // namespace

bool is_gpu_link(const Link& link) {
  return link.kind == LinkKind::nvlink || link.kind == LinkKind::xgmi;
}

Graph with_gpu_links(const Graph& host, double part) {
  return copy(
      host, [&](Link& l) { l.bandwidth *= is_gpu_link(l) ? part : 1; }, [](topology::Node&) {});
}

Graph with_pci(const Graph& host, double part) {
  return copy(
      host, [&](Link& l) { l.bandwidth *= l.kind == LinkKind::pci ? part : 1; },
      [](topology::Node&) {});
}

Graph without_gpu_links(const Graph& host, bool peers) {
  return copy(
      host, [](Link& l) { l.bandwidth = is_gpu_link(l) ? 0 : l.bandwidth; },
      [&](topology::Node& n) {
        // The model is what says that GPUs do not reach each other.
        if (!peers && n.kind == topology::NodeKind::gpu) n.model = "RTX 3090";
      });
}

int ports_of(const PredictedMachine& m) {
  if (m.network.ports > 0) return m.network.ports;
  const int known = static_cast<int>(topology::data_ports(m.host, 0).size());
  return std::max(known, 1);
}

double rate_of(const PredictedMachine& m) {
  if (m.network.rate > 0) return m.network.rate;
  double rate = 0;
  for (const int port : topology::data_ports(m.host, 0)) {
    for (const int l : m.host.out(port)) rate = std::max(rate, 8 * m.host.link(l).bandwidth);
  }
  return rate > 0 ? rate : 100;
}

void slow_down(GpuConstants& c, double times) {
  for (double GpuConstants::*latency :
       {&GpuConstants::call_ll, &GpuConstants::call_ll128, &GpuConstants::call_simple,
        &GpuConstants::link_ll, &GpuConstants::link_ll128, &GpuConstants::link_simple,
        &GpuConstants::pci_ll, &GpuConstants::pci_simple, &GpuConstants::staged_ll,
        &GpuConstants::staged_simple, &GpuConstants::net_ll, &GpuConstants::net_ll128,
        &GpuConstants::net_simple}) {
    c.*latency *= times;
  }
}

}  // namespace tutti

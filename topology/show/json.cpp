// See json.h.
#include "topology/show/json.h"

#include <nlohmann/json.hpp>

#include "topology/nics.h"
#include "topology/show/text.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

using Json = nlohmann::ordered_json;

Json inventory_json(const Inventory& n) {
  return {{"version", n.version},
          {"elements", n.elements},
          {"hosts", n.hosts},
          {"cpus", n.cpus},
          {"pci", n.pci},
          {"gpu_elements", n.gpu_elements},
          {"gpus_by_class_only", n.gpus_by_class_only},
          {"nic_elements", n.nic_elements},
          {"nic_pci_by_class", n.nic_pci_by_class},
          {"nets", n.nets},
          {"net_speeds", n.net_speeds},
          {"nvlink_elements", n.nvlink_elements},
          {"nvlink_links", n.nvlink_links},
          {"nvswitch_targets", n.nvswitch_targets},
          {"xgmi_elements", n.xgmi_elements},
          {"xgmi_links", n.xgmi_links},
          {"c2c_elements", n.c2c_elements}};
}

Json node_json(const Node& n) {
  Json j{{"kind", name(n.kind)}, {"name", n.name}, {"host", n.host}};
  if (!n.model.empty()) j["model"] = n.model;
  if (n.number >= 0) j["number"] = n.number;
  if (n.parent >= 0) j["in"] = n.parent;
  if (n.bus) j["bus"] = text_of(*n.bus);
  if (n.members != 1) j["members"] = n.members;
  if (!n.up) j["up"] = false;
  j["said_by"] = printable(n.origin.text());
  return j;
}

Json link_json(const Link& l) {
  Json j{{"from", l.from},          {"to", l.to},
         {"kind", name(l.kind)},    {"lanes", l.lanes},
         {"GB_per_s", l.bandwidth}, {"latency_ns", l.latency}};
  if (l.assumed) j["assumed"] = true;
  return j;
}

}  // namespace

std::string to_json(const Graph& graph, const Inventory& inventory) {
  Json j{{"source", printable(graph.source)},
         {"format", graph.format},
         {"inventory", inventory_json(inventory)}};
  j["nodes"] = Json::array();
  for (const Node& n : graph.nodes()) j["nodes"].push_back(node_json(n));
  j["links"] = Json::array();
  for (const Link& l : graph.links()) j["links"].push_back(link_json(l));
  j["nics"] = Json::array();
  for (const NicChoice& c : nics_of_gpus(graph)) {
    if (c.port < 0) continue;
    j["nics"].push_back({{"gpu", graph.node(c.gpu).name},
                         {"port", graph.node(c.port).name},
                         {"near", near_text(graph, c.path)},
                         {"GB_per_s", c.path.bandwidth}});
  }
  j["doubts"] = Json::array();
  for (const Doubt& d : graph.doubts) j["doubts"].push_back(d.what);
  j["unseen"] = graph.unseen;
  return j.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::topology

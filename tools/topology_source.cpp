// See topology_source.h.
#include "tools/topology_source.h"

#include <fmt/format.h>

#include <cstdio>

#include "tools/text_file.h"
#include "topology/describe.h"
#include "topology/fill.h"

namespace tutti {

topology::Records topology_records(const std::string& file) {
  if (file.empty()) return topology::discover_records();
  if (file == "-") return topology::records_of(read_text("-", "topology"), "stdin");
  return topology::read_records(file);
}

topology::Records described_records(const std::string& text) {
  const topology::Described d = topology::parse_machine(text);
  return topology::records_of(topology::machine_xml(*d.model, d.count, 0, 0, d.bridged), text);
}

topology::Records filled_records(const std::string& file, const std::string& description,
                                 std::string& filled) {
  topology::Records records = topology_records(file);
  if (!description.empty()) {
    filled = topology::fill_in(records, topology::parse_machine(description));
  }
  return records;
}

void warn_of_unlinked(const topology::Graph& graph, const std::string& hint) {
  const std::string which = topology::unlinked_gpus(graph);
  if (which.empty()) return;
  fmt::print(
      stderr,
      "tutti: {} names no links between {}, which are usually sold with such, so they reach each "
      "other over PCI alone; {}\n",
      graph.source, which, hint);
}

topology::Graph topology_graph(topology::Records& records) {
  topology::Graph graph = topology::graph_of(records);
  for (const topology::Doubt& d : graph.doubts) {
    fmt::print(stderr, "tutti: not believed: {}\n", d.what);
  }
  return graph;
}

}  // namespace tutti

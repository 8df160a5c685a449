// See topology_source.h.
#include "tools/topology_source.h"

#include <fmt/format.h>

#include <cstdio>

#include "tools/text_file.h"
#include "topology/describe.h"

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

topology::Graph topology_graph(topology::Records& records) {
  topology::Graph graph = topology::graph_of(records);
  for (const topology::Doubt& d : graph.doubts) {
    fmt::print(stderr, "tutti: not believed: {}\n", d.what);
  }
  return graph;
}

}  // namespace tutti

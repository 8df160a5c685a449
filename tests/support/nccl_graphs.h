// NCCL's graph XML (NCCL_GRAPH_DUMP_FILE): what NCCL has found on a machine, to compare with. The
// reader is more generous than NCCL: it takes any number of elements in any order, and ignores
// unknown elements and attributes.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// One <graph>: the channels that NCCL found, or was told to use, for one kind of algorithm.
struct NcclGraph {
  int id = 0;              // 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct
  int pattern = 0;         // 4 is a ring, 1 to 3 are trees, 5 is NVLS
  double speed_intra = 0;  // GB/s of a channel
  struct Channel {
    std::vector<int> gpus;  // by dev, without the host's number in the upper byte of NCCL's
    std::vector<int> nets;
  };
  std::vector<Channel> channels;
};
struct NcclGraphs {
  std::vector<NcclGraph> graphs;
  std::vector<Doubt> doubts;
};
/// Throws Error(invalid_argument) if there is no <graphs>.
inline NcclGraphs read_nccl_graphs(const XmlSource& xml) {
  // NCCL writes the host's number into the upper byte.
  const auto device_number = [](const Attributes& a) {
    return static_cast<int>(a.integer("dev").value_or(-1) & 0x00ffffff);
  };
  NcclGraphs all;
  const pugi::xml_node root = xml.document().child("graphs");
  if (!root) xml.refuse(xml.document().first_child(), "expected <graphs>");
  for (const pugi::xml_node& node : root.children("graph")) {
    const Attributes a(xml, node, all.doubts);
    NcclGraph g;
    g.id = a.integer_or("id", 0);
    g.pattern = a.integer_or("pattern", 0);
    g.speed_intra = a.number("speedintra").value_or(0);
    for (const pugi::xml_node& channel : node.children("channel")) {
      NcclGraph::Channel c;
      for (const pugi::xml_node& member : channel.children()) {
        const Attributes m(xml, member, all.doubts);
        const std::string_view name = member.name();
        if (name == "gpu") c.gpus.push_back(device_number(m));
        if (name == "net") c.nets.push_back(device_number(m));
      }
      g.channels.push_back(std::move(c));
    }
    if (a.integer_or("nchannels", 0) != static_cast<int>(g.channels.size())) {
      all.doubts.push_back(
          {fmt::format("{}: nchannels is {}, but there are {}", xml.origin(node).text(),
                       a.integer_or("nchannels", 0), g.channels.size())});
    }
    all.graphs.push_back(std::move(g));
  }
  return all;
}

}  // namespace tutti::topology

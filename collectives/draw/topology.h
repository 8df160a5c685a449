// A topology as a picture (SVG): boxes in boxes for the tree of devices, lines for the links
// between GPUs, and each link's bandwidth.
#pragma once

#include <string>

#include "topology/graph.h"

namespace tutti {

std::string draw_topology(const topology::Graph& graph);

}  // namespace tutti

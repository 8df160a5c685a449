// A rank's place in its host's graph: a GPU, or cores of a NUMA domain; and what is near it.
// Communicators use it to order ranks and to choose ports for other hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/host.h"
#include "topology/graph.h"

namespace tutti::topology {

/// This host as communicators see it: from TUTTI_TOPO_FILE, else from the system. Null if the
/// setting is "off". A process reads it once for each value of the setting, at the first request:
/// that takes milliseconds, on large machines tens of them. Throws Error(invalid_argument) for a
/// file that is no topology.
std::shared_ptr<const Graph> host_graph();

/// The node of a GPU of this host, by its address ("0000:3b:00.0"), or by its number if the address
/// is not known (""); -1 if there is none.
int gpu_node(const Graph& graph, const std::string& bus, int number);
/// The NUMA domain in which all of `cores` lie; -1: there is none.
int cores_node(const Graph& graph, const CoreSet& cores);

/// The ports for other hosts that are nearest to a GPU (the one that it uses, nics.h), or to cores
/// of a NUMA domain (all that are equally near).
std::vector<int> near_ports(const Graph& graph, int node);

}  // namespace tutti::topology

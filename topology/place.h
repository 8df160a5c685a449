// Where a rank stands in its host's graph: at a GPU, or on cores of a NUMA domain; and what is near
// it. Communicators put ranks in order by it, and choose ports for those on other hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/host.h"
#include "topology/graph.h"

namespace tutti::topology {

/// This host as communicators see it: what TUTTI_TOPO_FILE says, else what the system shows. Null
/// where the setting is "off". Looked at once in a process for each value of the setting, and not
/// before somebody asks: that takes milliseconds, on large machines tens of them. Throws
/// Error(invalid_argument) for a file that is none.
std::shared_ptr<const Graph> host_graph();

/// The node of a GPU of this host, by its address ("0000:3b:00.0"), or, where that is not known
/// (""), its number; -1: there is none.
int gpu_node(const Graph& graph, const std::string& bus, int number);
/// The NUMA domain in which all of `cores` lie; -1: there is none.
int cores_node(const Graph& graph, const CoreSet& cores);

/// The ports for other hosts that are nearest to a GPU (the one that it uses, nics.h), or to cores
/// of a NUMA domain (all that are equally near).
std::vector<int> near_ports(const Graph& graph, int node);

}  // namespace tutti::topology

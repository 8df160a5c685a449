// A topology for people: as a tree, as the matrix that nvidia-smi prints, and why a GPU uses which
// port.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti::topology {

std::string tree_text(const Graph& graph);
/// As `nvidia-smi topo -m` prints it. Throws Error(invalid_argument) for more than 1,024 GPUs and
/// ports.
std::string matrix_text(const Graph& graph);
/// Throws Error(invalid_argument) where there is no node `name` ("gpu3", "mlx5_0", "numa1").
std::string explain_text(const Graph& graph, std::string_view name);
/// "24 GB/s", "12.5 GB/s"; what is assumed in brackets.
std::string bandwidth_text(double gigabytes, bool assumed = false);
/// How two nodes are to each other: "NV18", "XG4", "PIX", ...
std::string near_text(const Graph& graph, const Path& path);

}  // namespace tutti::topology

// What a file does not say of its GPUs, and what a description of the machine ("8xH100") says
// instead: clouds publish files with devices and bridges alone, and who takes those as they are
// sees GPUs without NVLink.
#pragma once

#include <string>
#include <vector>

#include "topology/describe.h"
#include "topology/graph.h"

namespace tutti::topology {

/// "8 GPUs (A100 SXM4 80GB)": those of which nothing says a link to another GPU, though their model
/// is sold with such links alone; "" where there are none, and where a host has one GPU.
std::string unlinked_gpus(const Graph& graph);

/// Gives GPUs that have none the model, and all of them the links if none has any, of a machine
/// that is described. Returns what it filled in, "model and links"; "": nothing was missing. Throws
/// Error(invalid_argument) where the file contradicts the description.
std::string fill_in(Records& records, const Described& machine);

}  // namespace tutti::topology

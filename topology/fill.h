// Fills gaps of a file from a description of the machine ("8xH100"). Clouds publish files with
// devices and bridges alone; such a file shows GPUs without NVLink.
#pragma once

#include <string>

#include "topology/describe.h"
#include "topology/graph.h"

namespace tutti::topology {

/// "8 GPUs (A100 SXM4 80GB)": the GPUs without any link to another GPU in the records, though their
/// model is sold only with such links. "" if there are none, or if a host has one GPU.
std::string unlinked_gpus(const Graph& graph);

/// Gives GPUs without a model the model of the described machine. Gives all GPUs its links, if none
/// has any. Returns the filled gaps, such as "model and links"; "" if nothing was missing. Throws
/// Error(invalid_argument) if the file contradicts the description.
std::string fill_in(Records& records, const Described& machine);

}  // namespace tutti::topology

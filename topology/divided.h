// GPUs that are parts of one device: AMD's partitions (SPX is one part; DPX, TPX, QPX and CPX are
// two to eight), NVIDIA's MIG instances. Each part is a GPU for programs, and none has links of its
// own: what leads out of the device, and the device's memory, is there once for all of them.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

struct DividedGpu {
  std::vector<std::size_t> parts;  // indices of Records::devices; two at least
  Link to_part;                    // between the device and each part
};

/// Parts are GPUs with one address but for the function, of models that can be divided.
std::vector<DividedGpu> divided_gpus(const Records& records);

/// Indices into `gpus` (nodes of the graph): those of one device together, a GPU that is whole
/// alone; in the order of the first of each.
std::vector<std::vector<int>> by_device(const Graph& graph, const std::vector<int>& gpus);

}  // namespace tutti::topology

// GPUs that are parts of one device: AMD's partitions (SPX is one part; DPX, TPX, QPX and CPX are
// two to eight), NVIDIA's MIG instances. Each part is a GPU for programs. No part has links of its
// own: all parts share the links that lead out of the device, and the device's memory.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/graph.h"
#include "topology/records.h"

namespace tutti::topology {

struct DividedGpu {
  std::vector<std::size_t> parts;  // indices of Records::devices; at least two
  Link to_part;                    // between the device and each part
};

/// Parts are GPUs of divisible models with addresses that differ in the function alone.
std::vector<DividedGpu> divided_gpus(const Records& records);

/// Indices into `gpus` (nodes of the graph), in groups: the parts of one device together, a whole
/// GPU alone. The groups are in the order of their first member.
std::vector<std::vector<int>> by_device(const Graph& graph, const std::vector<int>& gpus);

}  // namespace tutti::topology

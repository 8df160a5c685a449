// How plans put ranks in order that each have a GPU: as the rings that the links of their hosts
// carry pass them, lane by lane. Each rank reads its own place off its host's graph; all places
// together, which all ranks know, make the order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/model/domains.h"
#include "collectives/plan.h"

namespace tutti {

namespace topology {
class Graph;
}

/// Of a GPU among those of its host; plain bytes, handed round at the rendezvous.
struct GpuPlace {
  std::int32_t domain = -1;  // the same: GPUs that links join, or of one NUMA domain; -1:
                             // nobody knows
  std::int32_t lanes = 1;    // that have an order of their own
  std::array<std::uint16_t, kOwnChannels> turn{};  // in the order of each of them
};

/// `gpu`: a node of the graph; -1 is no place.
GpuPlace gpu_place(const topology::Graph& graph, int gpu);

/// A layout for each lane of plans that have such, the first one for all others. `places` by rank;
/// none where a rank has no place, or all orders are that of the ranks: then plans are laid out as
/// on cores.
std::vector<Domains> gpu_layouts(std::span<const GpuPlace> places, const Domains& hosts);

}  // namespace tutti

// A simulated run on a cluster as pictures (SVG): which rank sends when, and which link is busy
// when.
#pragma once

#include <string>
#include <string_view>

#include "collectives/cluster/simulate.h"

namespace tutti {

/// Space-time: time runs to the right, every rank has a staff, every message is a box on it, as
/// high as it is fast, coloured by its way. `run` must be recorded.
std::string draw_run(const cluster::Simulated& run, std::string_view title);

/// A row for each link that carries something, the busiest first, with the used share of its
/// capacity at each time: white for nothing, dark red for all.
std::string draw_heat(const cluster::Simulated& run, std::string_view title);

}  // namespace tutti

// What is NCCL's alone of the constants behind predictions, beside those of GPUs and their
// protocols (collectives/model/gpu_constants.h): each with its source, and overridden by name like
// those.
#pragma once

#include <span>
#include <string_view>

#include "collectives/model/constant.h"
#include "collectives/model/gpu_constants.h"
#include "topology/graph.h"

namespace tutti {

struct NcclConstants {
  double kernel_hopper = 1.1, kernel_blackwell = 1.6;
  double net_peer = 1.1;       // us
  double launch_hopper = 1.7;  // us
};

std::span<const Constant<NcclConstants>> nccl_constants();

/// "net_peer=1.5". False for a name that is none of these; throws Error(invalid_argument) for a
/// value that is no number above 0.
bool override_constant(NcclConstants& constants, std::string_view text);

/// The latencies of calls and of messages between GPUs, and what goes through memory of the host,
/// for the generation of a host's GPUs.
GpuConstants of_generation(const GpuConstants& constants, const NcclConstants& nccl,
                           const topology::Graph& host);

}  // namespace tutti

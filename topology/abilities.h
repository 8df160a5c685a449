// What GPUs of a model can do with each other: descriptions and predictions ask for it.
#pragma once

#include <string_view>

#include "topology/constants.h"

namespace tutti::topology {

/// Whether GPUs of a model (GpuModel::name) read and write each other's memory over PCI. The driver
/// refuses it on GeForce since Turing; their data go through memory of the host.
bool has_peer_access(std::string_view model);
/// Cards: bridges join them, and no switches.
bool for_slots(const GpuModel& model);
/// Whether the switches that join such GPUs reduce what goes through them: NVSwitch does from its
/// third generation on, which came with Hopper.
bool switch_reduces(std::string_view model);
/// Whether NCCL, or RCCL, uses LL128 on such GPUs unasked. Among AMD's GPUs, only on MI200.
bool has_ll128(std::string_view model);

}  // namespace tutti::topology

// Collectives on GPU memory, bound: which plan runs, and where its buffers are for other ranks. In
// one process they are where they are; between processes a plan may address them if all ranks'
// buffers lie in windows (device/windows.h), and else their data goes through slots.
#pragma once

#include <span>
#include <vector>

#include "comm/bind.h"
#include "comm/device_call.h"
#include "device/team.h"

namespace tutti {

/// The parts of some ranks of this process in one operation, whose calls were checked and whose
/// peers are reached. `tables`, one for each call, keep what the parts point to. Waits for the
/// other ranks where an agreement or a window is new. Throws Error.
std::vector<DeviceTeam::Part> bind_on_device(DeviceTeam& team, std::span<const DeviceCallOn> calls,
                                             std::vector<Tables>& tables);

}  // namespace tutti

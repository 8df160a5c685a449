// Collectives on GPU memory, bound: the plan that runs, and the addresses of its buffers for other
// ranks. In one process plans use the addresses directly. Between processes a plan may address
// buffers if the buffers of all ranks lie in windows (device/windows.h); otherwise their data go
// through slots.
#pragma once

#include <span>
#include <vector>

#include "comm/bind.h"
#include "comm/device_call.h"
#include "device/team.h"

namespace tutti {

/// The parts of some ranks of this process in one operation. Their calls are checked, and their
/// peers are reached. `tables`, one for each call, own the numbers that the parts point to. Waits
/// for the other ranks if an agreement or a window is new. Throws Error.
std::vector<DeviceTeam::Part> bind_on_device(DeviceTeam& team, std::span<const DeviceCallOn> calls,
                                             std::vector<Tables>& tables);

}  // namespace tutti

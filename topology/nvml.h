// The GPUs as NVIDIA's driver describes them: NVLink by link and peer, NVSwitch, C2C, MIG, names.
#pragma once

#include "topology/records.h"

namespace tutti::topology {

/// Completes the GPUs in `records`, by address, and adds GPUs that /sys hides. Opens
/// libnvidia-ml.so.1 at run time; without it "not seen" mentions GPUs without links.
void add_nvml(Records& records);

}  // namespace tutti::topology

// What NVIDIA's driver says of its GPUs: NVLink by link and peer, NVSwitch, C2C, MIG, names.
#pragma once

#include "topology/records.h"

namespace tutti::topology {

/// Adds to the GPUs in `records`, by address, and GPUs that /sys hides. The library
/// (libnvidia-ml.so.1) is opened at run time; without it, nothing happens, and GPUs without links
/// are said to be so.
void add_nvml(Records& records);

}  // namespace tutti::topology

// AMD's GPUs as the kernel driver (KFD) shows them: /sys/class/kfd/kfd/topology/nodes.
#pragma once

#include <string>

#include "topology/records.h"
#include "topology/sysfs_tree.h"

namespace tutti::topology {

/// Reads `folder`/nodes. Completes GPUs, by address, or adds them; and processors if none are.
void read_kfd(const SysfsTree& tree, const std::string& folder, Records& records);

}  // namespace tutti::topology

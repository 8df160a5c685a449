// AMD's GPUs as the kernel driver (KFD) shows them: /sys/class/kfd/kfd/topology/nodes.
#pragma once

#include <string>

#include "topology/records.h"
#include "topology/sysfs_tree.h"

namespace tutti::topology {

/// Adds what `folder`/nodes says: to the GPUs that are there by address, or new ones; processors
/// where there are none yet.
void read_kfd(const SysfsTree& tree, const std::string& folder, Records& records);

}  // namespace tutti::topology

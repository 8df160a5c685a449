// The processors that Linux shows: NUMA domains with their cores, and last-level caches.
#pragma once

#include "topology/records.h"
#include "topology/sysfs_tree.h"

namespace tutti::topology {

/// Adds them to `records`, and what they are to its `unseen`.
void read_sysfs_processors(const SysfsTree& tree, Records& records);

}  // namespace tutti::topology

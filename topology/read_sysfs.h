// A machine as Linux describes it: NUMA domains, processors, the PCI tree with its speeds, network
// interfaces, InfiniBand devices, AMD's GPUs (KFD). Of this machine or of a copied tree.
#pragma once

#include <string>

#include "topology/records.h"

namespace tutti::topology {

/// `root`: a folder with sys/ (and proc/) in it, "" for this machine; or a folder with KFD's
/// nodes/. Throws Error(invalid_argument) if it has neither.
Records read_sysfs(const std::string& root);

}  // namespace tutti::topology

// Records as the XML that NCCL and RCCL read (NCCL_TOPO_FILE).
#pragma once

#include <string>

#include "topology/records.h"

namespace tutti::topology {

std::string to_nccl_xml(const Records& records);

}  // namespace tutti::topology

// NCCL's and RCCL's system XML (versions 1 and 2; NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). Unlike
// NCCL, the reader takes any number of elements in any order, and ignores unknown ones.
#pragma once

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// Throws Error(invalid_argument) if there is no <system> with content.
Records read_nccl_system(const XmlSource& xml);

}  // namespace tutti::topology

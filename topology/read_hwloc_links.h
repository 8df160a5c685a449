// The matrices of hwloc's XML that say how GPUs and switches are linked: NVLink and xGMI.
#pragma once

#include <cstdint>
#include <map>

#include "topology/records.h"
#include "topology/source.h"

namespace tutti::topology {

/// Adds the links of a matrix of bandwidths, in MB/s, to the GPUs in `records`; other matrices say
/// nothing of them. `devices`: where the objects are in `records`, by their gp_index; -1: left out.
void read_hwloc_links(const XmlSource& xml, const pugi::xml_node& distances,
                      const std::map<std::int64_t, int>& devices, Records& records);

}  // namespace tutti::topology

// The descriptions of a machine that Tutti reads, each by a file of its own: read_X.cpp says what
// is special about X. Where a text is none of the kind, a reader throws Error(invalid_argument).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "topology/records.h"
#include "topology/source.h"
#include "topology/sysfs_tree.h"

namespace tutti::topology {

/// hwloc's XML, formats 1.x, 2.x and 3.0: there must be a <topology> with a machine in it.
Records read_hwloc(const XmlSource& xml);
/// Adds the links of a matrix of hwloc's, of bandwidths in MB/s, to the GPUs in `records`: NVLink
/// and xGMI; other matrices say nothing of them. `devices`: where the objects are in `records`, by
/// their gp_index; -1: left out.
void read_hwloc_links(const XmlSource& xml, const pugi::xml_node& distances,
                      const std::map<std::int64_t, int>& devices, Records& records);

/// NCCL's and RCCL's system XML: there must be a <system> with content.
Records read_nccl_system(const XmlSource& xml);

/// Whether a text begins like the matrix of `nvidia-smi topo -m`.
bool looks_like_smi(std::string_view text);
/// Such a matrix; no other text, such as the matrix of `topo -p2p`.
Records read_smi(const std::string& text, const std::string& name);

/// A machine as Linux describes it. `root`: a folder with sys/ (and proc/) in it, "" for this
/// machine; or a folder with KFD's nodes/.
Records read_sysfs(const std::string& root);
/// Adds the processors that Linux shows to `records`, and what they are to its `unseen`: NUMA
/// domains with their cores, and last-level caches.
void read_sysfs_processors(const SysfsTree& tree, Records& records);
/// Reads `folder`/nodes, AMD's GPUs as the kernel driver (KFD) shows them. Completes existing GPUs,
/// by address, or adds new ones; adds processors if there are none yet.
void read_kfd(const SysfsTree& tree, const std::string& folder, Records& records);

/// Completes the GPUs in `records`, by address, and adds GPUs that /sys hides, as NVML says. It is
/// opened here; without it nothing happens, and "not seen" mentions GPUs without links.
void add_nvml(Records& records);

}  // namespace tutti::topology

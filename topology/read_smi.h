// The matrix of `nvidia-smi topo -m`. It says how near devices are, not where: addresses are made
// up, and switches are what devices that are PIX or PXB to each other must share.
#pragma once

#include <string>

#include "topology/records.h"

namespace tutti::topology {

/// Whether a text begins like such a matrix.
bool looks_like_smi(std::string_view text);
/// Throws Error(invalid_argument) for what is no such matrix, among it that of `topo -p2p`.
Records read_smi(const std::string& text, const std::string& name);

}  // namespace tutti::topology

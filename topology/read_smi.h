// The matrix of `nvidia-smi topo -m`. It says how near devices are, not where. The reader makes up
// addresses, and a switch for devices that are PIX or PXB to each other: they must share one.
#pragma once

#include <string>

#include "topology/records.h"

namespace tutti::topology {

/// Whether a text begins like such a matrix.
bool looks_like_smi(std::string_view text);
/// Throws Error(invalid_argument) for any other text, such as the matrix of `topo -p2p`.
Records read_smi(const std::string& text, const std::string& name);

}  // namespace tutti::topology

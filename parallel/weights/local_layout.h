// A layout of which each rank knows its own part alone, as a program does that has tensors of a
// framework in its hands: every rank says what it holds, and all get the layout.
#pragma once

#include <tutti/comm/communicator.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../reshard/layout.h"

namespace tutti::parallel::weights {

/// A box of a tensor that lies packed in this rank's memory.
struct LocalPiece {
  reshard::Tensor tensor;
  std::vector<std::uint64_t> offset;  // of the box in the tensor; as many as dimensions
  std::vector<std::uint64_t> extent;  // its size
};

/// Collective over `comm`. Piece number i of a rank is in the buffer "i". Throws, on all ranks,
/// Error(invalid_argument) for a piece that cannot be, or for ranks that have a tensor with
/// different types or shapes.
reshard::Layout gather_layout(Communicator& comm, std::span<const LocalPiece> pieces);

}  // namespace tutti::parallel::weights

// How far a piece reaches in its buffer.
#pragma once

#include <cstdint>

#include "parallel/reshard/layout.h"

namespace tutti::parallel::reshard {

/// Bytes from its first element to behind its last one.
std::uint64_t span_of(const Piece& piece, DataType type);

}  // namespace tutti::parallel::reshard

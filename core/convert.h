// Conversions between floating-point types, of whole arrays: one rounding, to nearest even, as in
// float_types.h. Vectorised where float32 is one of the two types.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace tutti {

/// to[i] = from[i]. The types are floats, the arrays the same one (of one type) or apart. Throws
/// Error(invalid_argument) for other types. Thread-safe.
void convert(const void* from, DataType from_type, void* to, DataType to_type, std::size_t count);

/// Whether none of the floats is infinite or NaN; integers always are finite.
bool all_finite(const void* data, DataType type, std::size_t count);

}  // namespace tutti

// The representation external32 of the standard: big-endian, with a width for each type that does
// not depend on the machine.
#pragma once

#include <cstddef>

#include "bindings/mpi/type.h"

namespace tutti::mpi {

/// Converts `count` elements of the type to count * type.external_size() bytes, and back. Throw
/// Failure(MPI_ERR_CONVERSION) for a number that has no room: external32 has 4 bytes for C's long,
/// and 2 for wchar_t.
void to_external32(const void* buffer, MPI_Count count, const Type& type, std::byte* out);
void from_external32(const std::byte* in, MPI_Count count, const Type& type, void* buffer);

}  // namespace tutti::mpi

// Where a pointer points to.
#pragma once

#include <cstdint>

namespace tutti::nccl {

enum class MemoryKind : std::uint8_t { host, device };

/// Without CUDA every pointer is host memory.
MemoryKind memory_of(const void* pointer);

}  // namespace tutti::nccl

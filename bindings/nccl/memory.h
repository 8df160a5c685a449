// The kind of memory of a pointer.
#pragma once

#include <cstdint>

namespace tutti::nccl {

enum class MemoryKind : std::uint8_t { host, device };

/// Without CUDA, and before the process has started CUDA, every pointer is host memory. Pinned
/// memory of the host counts as host memory, managed memory as device memory.
MemoryKind memory_of(const void* pointer);

}  // namespace tutti::nccl

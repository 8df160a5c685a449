// Where a pointer points to.
#pragma once

#include <cstdint>

namespace tutti::nccl {

enum class MemoryKind : std::uint8_t { host, device };

/// Without CUDA, and before anybody has started it, every pointer is host memory. Pinned memory of
/// the host is the host's; managed memory is the device's.
MemoryKind memory_of(const void* pointer);

}  // namespace tutti::nccl

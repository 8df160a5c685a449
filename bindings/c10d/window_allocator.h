// Tensors in window memory, which the other ranks of a host read in place (docs/memory.md).
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace tutti::pytorch {

/// Keeps freed memory for the next tensor of that size: new windows cost system calls, and the
/// other ranks have to map them.
std::shared_ptr<c10::Allocator> window_allocator();

/// Whether all of it is memory that the allocator has given to a tensor.
bool is_window_memory(const void* data, std::size_t bytes);

}  // namespace tutti::pytorch

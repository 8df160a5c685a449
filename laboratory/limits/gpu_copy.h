// The two ways to copy on a GPU, for gpu_copy.cpp: neither waits.
#pragma once

#include <cstddef>

namespace tutti::limits {

/// cudaMemcpyAsync(). Both return null, or the error in words. `stream` is a cudaStream_t.
const char* copy_by_runtime(void* to, const void* from, std::size_t bytes, void* stream);
/// A kernel that reads every byte once and writes every byte once, and does nothing else. 16-byte
/// aligned, and a multiple of 16 bytes.
const char* copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace tutti::limits

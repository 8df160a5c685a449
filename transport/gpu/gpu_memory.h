// Memory of the calling thread's GPU, for libnccl.so.2: its users name no device.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// CUDA's ordinal of the calling thread's GPU; -1 where this process has not started CUDA, or there
/// is none. Never starts it: what a process does on the host alone stays there.
int current_gpu();

/// That of the thread's own context of CUDA; -1 where it has none.
int gpu_of_thread();

/// The PCI address of one, "0000:3b:00.0"; "" where there is none, or this process has not started
/// CUDA. Never starts it.
std::string gpu_address(int ordinal);

/// How many GPUs this process can use; 0 where there is no driver. `why`: in words, if it is not
/// null. Starts CUDA.
int gpu_count(std::string* why = nullptr);

/// Of current_gpu(), which there must be. Throws Error(system).
void* allocate_on_gpu(std::size_t bytes);
void free_on_gpu(void* memory) noexcept;

/// A copy of GPU memory for work that comes on `stream` (a cudaStream_t). It is made, used and
/// freed in the order of that stream; the stream may be captured. Throws Error(system).
void* duplicate_on_gpu(const void* memory, std::size_t bytes, void* stream);
void free_duplicate(void* memory, void* stream) noexcept;

/// Copies from a GPU what is there after all work on `stream` (a cudaStream_t), for which it waits.
/// Throws Error: invalid_usage while the stream is captured; system.
void read_from_gpu(void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace tutti

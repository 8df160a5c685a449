// What the library asks the driver of NVIDIA's GPUs itself: whose memory a pointer points to, and
// which GPU is the thread's. All else of CUDA is in libtutti_cuda.so (cuda_module.h).
//
// Nothing here starts CUDA: what a process does on the host alone stays there, and a process that
// has memory of a GPU has started it. Any thread may call these functions.
#pragma once

#include <string>

namespace tutti {

/// The driver's library, from dlopen(), looked for once; null where there is none.
void* gpu_driver();

/// CUDA's ordinal of the GPU whose memory (or managed memory) this is; -1: the host's, also where
/// there is no driver.
int gpu_of(const void* pointer);
/// Whether the memory is the host's, pinned by CUDA: copies from there take their time.
bool is_pinned(const void* pointer);

/// CUDA's ordinal of the calling thread's GPU; -1 where this process has not started CUDA, or there
/// is none.
int current_gpu();
/// The GPU of the thread's own context of CUDA; -1 where it has none.
int gpu_of_thread();

/// The PCI address of one, "0000:3b:00.0"; "" where there is none, or this process has not started
/// CUDA.
std::string gpu_address(int ordinal);

}  // namespace tutti

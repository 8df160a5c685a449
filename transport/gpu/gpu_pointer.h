// Which GPU's memory, or the host's, a pointer points to.
#pragma once

namespace tutti {

/// CUDA's ordinal of the GPU whose memory (or managed memory) this is; -1: the host's, also where
/// there is no CUDA. Never starts the driver: a process that has memory of a GPU has started it.
/// Thread-safe.
int gpu_of(const void* pointer);
/// Whether it is memory of the host that CUDA has pinned: copies from there take their time.
bool is_pinned(const void* pointer);

}  // namespace tutti

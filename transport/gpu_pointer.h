// Whose memory a pointer is.
#pragma once

namespace tutti {

/// CUDA's ordinal of the GPU whose memory (or managed memory) this is; -1: the host's, also where
/// there is no CUDA. Never starts the driver: who has memory of a GPU has done that. Thread-safe.
int gpu_of(const void* pointer);

}  // namespace tutti

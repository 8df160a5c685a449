// The interface of a communicator, and of engines, to the GPUs of this process. The tests replace
// GPUs by threads.
#pragma once

#include <memory>

#include "execute/cuda/engine_device.h"

namespace tutti {

namespace device {
class Device;
}

struct Gpus {
  /// The ordinal of the GPU that has this memory; -1: host memory.
  int (*owner)(const void* pointer);
  /// The ordinal of the calling thread's GPU.
  int (*current)();
  /// Throws Error(system) if there is none.
  std::shared_ptr<device::Device> (*open)(int ordinal);
};

/// CUDA's. The last two open libtutti_cuda.so, and throw Error(system) where it is missing.
Gpus cuda_gpus();

/// What `gpus.open(ordinal)` opens, for an engine.
std::shared_ptr<device::EngineDevice> open_for_engine(const Gpus& gpus, int ordinal);

}  // namespace tutti

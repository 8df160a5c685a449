// What a communicator asks of the GPUs of this process. The tests put threads in their place.
#pragma once

#include <memory>

#include "collectives/execute/cuda/device.h"

namespace tutti {

struct Gpus {
  /// The ordinal of the GPU whose memory this is; -1: the host's.
  int (*owner)(const void* pointer);
  /// The ordinal of the calling thread's GPU.
  int (*current)();
  /// Throws Error(system) where there is none.
  std::shared_ptr<device::Device> (*open)(int ordinal);
};

/// CUDA's; in a build without CUDA there are none.
Gpus cuda_gpus();

}  // namespace tutti

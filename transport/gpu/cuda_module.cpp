#include "transport/gpu/cuda_module.h"

#include <cstdlib>

#include "core/error.h"
#include "core/module.h"
#include "transport/gpu/gpu_driver.h"
#include "tutti_cuda_interface.h"

namespace tutti {
namespace {

/// Streams that share one of the GPU's queues wait for each other, and ranks as threads, each with
/// a stream, then wait in a circle. CUDA has 8 queues unless this is set before it starts, which is
/// before the module is opened, and 32 at most. A program that starts CUDA before Tutti is loaded
/// sets it itself (docs/gpu-status.md).
const int kQueues = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

const Cuda& open_cuda() {
  (void)kQueues;
  if (gpu_driver() == nullptr) {
    throw Error(ErrorCode::system, "there is no driver of NVIDIA's GPUs (libcuda.so.1)");
  }
  static const char here = 0;
  return *static_cast<const Cuda*>(
      open_module({"cuda", TUTTI_CUDA_INTERFACE, &here, "GPU memory"}));
}

}  // namespace

const Cuda& cuda() {
  static const Cuda& opened = open_cuda();  // tried again after an exception
  return opened;
}

int gpu_count(std::string* why) {
  std::string reason;
  int count = 0;
  try {
    count = cuda().count(reason);
  } catch (const Error& error) {
    reason = error.what();
  }
  if (why != nullptr && count == 0) *why = reason;
  return count;
}

}  // namespace tutti

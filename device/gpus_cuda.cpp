#include <map>
#include <mutex>

#include "collectives/execute/cuda/cuda_device.h"
#include "device/gpus.h"
#include "transport/gpu/gpu_pointer.h"

namespace tutti {
namespace {

std::shared_ptr<device::Device> open_gpu(int ordinal) {
  // Opening one loads all kernels, so communicators share it.
  static auto* const mutex =
      new std::mutex;  // these outlive communicators that end with the process
  static auto* const open = new std::map<int, std::weak_ptr<device::Device>>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<device::Device> gpu = (*open)[ordinal].lock();
  if (!gpu) (*open)[ordinal] = gpu = std::make_shared<device::CudaDevice>(ordinal);
  return gpu;
}

}  // namespace

Gpus cuda_gpus() { return {gpu_of, device::current_cuda_device, open_gpu}; }

}  // namespace tutti

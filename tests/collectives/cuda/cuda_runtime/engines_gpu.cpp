// Over the runtime of threads.
#include "tests/gpu/engines_gpu.h"

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>

#include "execute/cuda/cuda_device.h"
#include "tests/collectives/cuda/cuda_runtime/kernels.h"

namespace tutti::test {

Gpus gpus_of_the_test() {
  return {[](const void* memory) { return is_for_kernels(memory) ? 0 : -1; }, [] { return 0; },
          [](int ordinal) -> std::shared_ptr<device::Device> {
            static std::mutex mutex;
            static std::map<int, std::weak_ptr<device::Device>> all;
            const std::lock_guard lock(mutex);
            std::shared_ptr<device::Device> gpu = all[ordinal].lock();
            if (!gpu) all[ordinal] = gpu = std::make_shared<device::CudaDevice>(ordinal);
            return gpu;
          }};
}

void launch_elementwise(const Elementwise& kernel, void* stream) {
  cudaLaunchHostFunc(
      static_cast<cudaStream_t>(stream),
      [](void* data) {
        const std::unique_ptr<const Elementwise> k(static_cast<Elementwise*>(data));
        for (std::size_t i = 0; i < k->count; ++i) {
          const float a = k->a != nullptr ? k->a[i] : 0;
          const float b = k->b != nullptr ? k->b[i] : 0;
          k->to[i] = (k->adds ? k->to[i] : 0) + (a + k->scale * b);
        }
      },
      new Elementwise(kernel));
}

}  // namespace tutti::test

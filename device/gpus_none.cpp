// A build without CUDA.
#include "core/error.h"
#include "device/gpus.h"
#include "transport/gpu/gpu_pointer.h"

namespace tutti {

Gpus cuda_gpus() {
  return {gpu_of, [] { return 0; },
          [](int) -> std::shared_ptr<device::Device> {
            throw Error(ErrorCode::system,
                        "GPU memory needs a build of Tutti with CUDA (docs/building.md), and this "
                        "is one without");
          }};
}

}  // namespace tutti

#include "device/gpus.h"

#include "execute/cuda/device.h"
#include "transport/gpu/cuda_module.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti {

Gpus cuda_gpus() {
  return {gpu_of, [] { return cuda().current(); },
          [](int ordinal) { return cuda().open(ordinal); }};
}

std::shared_ptr<device::EngineDevice> open_for_engine(const Gpus& gpus, int ordinal) {
  return gpus.open(ordinal);
}

}  // namespace tutti

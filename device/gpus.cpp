#include "device/gpus.h"

#include "transport/gpu/cuda_module.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti {

Gpus cuda_gpus() {
  return {gpu_of, [] { return cuda().current(); },
          [](int ordinal) { return cuda().open(ordinal); }};
}

}  // namespace tutti

#include "parallel/gpu_kernels.h"

#include "core/module.h"
#include "tutti_parallel_cuda_interface.h"

namespace tutti::parallel {

const GpuKernels& gpu_kernels() {
  static const char here = 0;
  static const auto* const opened = static_cast<const GpuKernels*>(open_module(
      {"parallel_cuda", TUTTI_PARALLEL_CUDA_INTERFACE, &here, "an engine's arithmetic on a GPU"}));
  return *opened;
}

}  // namespace tutti::parallel

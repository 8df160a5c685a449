// Makes a GPU the calling thread's while an object lives.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "transport/gpu/cuda_error.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti {

/// Puts back the thread's GPU of before. Not where that is GPU 0 and nobody has started it: putting
/// it back would, and a context of CUDA takes hundreds of megabytes there. (Threads of Tutti have
/// named no GPU, and count as GPU 0's.)
class CurrentGpu {
 public:
  explicit CurrentGpu(int ordinal) : ordinal_(ordinal), before_(gpu_of_thread()) {
    if (before_ == ordinal) return;
    if (before_ < 0) before_ = current_gpu();
    check_cuda(cudaSetDevice(ordinal), fmt::format("GPU {}", ordinal));
  }
  ~CurrentGpu() {
    if (before_ >= 0 && before_ != ordinal_) cudaSetDevice(before_);
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int ordinal_;
  int before_;
};

}  // namespace tutti

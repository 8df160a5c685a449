// How calls of the CUDA runtime behave while an object lives, for CudaDevice's own code.
#pragma once

#include <cuda_runtime_api.h>

#include "collectives/execute/cuda/device.h"
#include "transport/gpu/cuda_error.h"

namespace tutti::device {

/// Makes a device the thread's current one, and puts back the one before.
class Current {
 public:
  explicit Current(int ordinal) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != ordinal) check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  }
  ~Current() { cudaSetDevice(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
};

/// While it lives, this thread may allocate and copy although one of its streams is being captured:
/// that work is done at once, and not recorded.
class Relaxed {
 public:
  Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the mode before, from then on
};

inline cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace tutti::device

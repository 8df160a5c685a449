// How calls of the CUDA runtime behave while an object lives, for CudaDevice's own code.
#pragma once

#include <cuda_runtime_api.h>

#include "execute/cuda/device.h"
#include "transport/gpu/cuda_error.h"

namespace tutti::device {

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
inline cudaEvent_t event_of(const Event& event) { return static_cast<cudaEvent_t>(event.get()); }

}  // namespace tutti::device

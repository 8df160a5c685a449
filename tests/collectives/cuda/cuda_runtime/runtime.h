// The CUDA runtime, as far as Tutti calls it, with threads in the GPUs' place: streams are queues,
// kernels are run by cuda_host_device.h, captures are lists of what was put on a stream. With it
// the real CudaDevice runs without a GPU.
//
// What it is there for: it notes each call that CUDA refuses while a stream is captured, which
// would spoil the capture, and each that waits for the whole GPU while a kernel runs. That kernel
// may wait for a rank whose thread is just then waiting for the GPU.
#pragma once

#include <string>
#include <vector>

namespace tutti::test {

/// The calls so far that should not have been, in words; forgets them.
std::vector<std::string> bad_cuda_calls();

/// Kernels that run now, on all streams.
int cuda_kernels_running();

}  // namespace tutti::test

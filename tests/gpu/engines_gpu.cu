// On a GPU.
#include <cuda_runtime.h>

#include "core/error.h"
#include "tests/gpu/engines_gpu.h"

namespace tutti::test {
namespace {

__global__ void elementwise(Elementwise k) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= k.count) return;
  const float a = k.a != nullptr ? k.a[i] : 0;
  const float b = k.b != nullptr ? k.b[i] : 0;
  const float before = k.adds ? k.to[i] : 0;
  k.to[i] = before + (a + k.scale * b);
}

}  // namespace

Gpus gpus_of_the_test() {
  cudaFuncAttributes attributes{};  // loads the kernel, before another one may wait for it
  cudaFuncGetAttributes(&attributes, elementwise);
  return cuda_gpus();
}

void launch_elementwise(const Elementwise& kernel, void* stream) {
  if (kernel.count == 0) return;
  constexpr unsigned kThreads = 128;
  const auto blocks = static_cast<unsigned>((kernel.count + kThreads - 1) / kThreads);
  elementwise<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(kernel);
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) throw Error(ErrorCode::system, cudaGetErrorString(result));
}

}  // namespace tutti::test

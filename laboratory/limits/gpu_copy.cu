#include <cuda_runtime.h>

#include "laboratory/limits/gpu_copy.h"

namespace tutti::limits {
namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kUnrolled = 4;  // loads under way in every thread

// Streaming: nothing is used again, so nothing needs to stay in the cache.
__global__ void __launch_bounds__(kThreads) copy(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnrolled - 1) * step < count; i += kUnrolled * step) {
    uint4 values[kUnrolled];
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k) values[k] = __ldcs(from + i + k * step);
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k) __stcs(to + i + k * step, values[k]);
  }
  for (; i < count; i += step) __stcs(to + i, __ldcs(from + i));
}

const char* text_of(cudaError_t result) {
  return result == cudaSuccess ? nullptr : cudaGetErrorString(result);
}

// As many blocks as run at once.
unsigned blocks() {
  static const unsigned result = [] {
    int device = 0;
    int processors = 1;
    int each = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, copy, kThreads, 0);
    return static_cast<unsigned>(processors * each);
  }();
  return result;
}

}  // namespace

const char* copy_by_runtime(void* to, const void* from, std::size_t bytes, void* stream) {
  return text_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(stream)));
}

const char* copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream) {
  copy<<<blocks(), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), bytes / sizeof(uint4));
  return text_of(cudaGetLastError());
}

}  // namespace tutti::limits

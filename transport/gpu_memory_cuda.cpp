#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "transport/gpu_memory.h"

namespace tutti {
namespace {

// Of the driver: the runtime's cudaGetDevice() would start it.
struct Functions {
  decltype(&::cuCtxGetCurrent) context = nullptr;
  decltype(&::cuCtxGetDevice) device = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) primary = nullptr;

  Functions() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&]<class F>(F& f, const char* name) {
      f = reinterpret_cast<F>(dlsym(library, name));
    };
    find(context, "cuCtxGetCurrent");
    find(device, "cuCtxGetDevice");
    find(primary, "cuDevicePrimaryCtxGetState");
  }
};

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // so that a later call does not report it
  throw Error(ErrorCode::system, fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(result),
                                             cudaGetErrorName(result)));
}

}  // namespace

int current_gpu() {
  static const Functions driver;
  if (driver.context == nullptr || driver.device == nullptr || driver.primary == nullptr) return -1;
  CUcontext context = nullptr;
  if (driver.context(&context) != CUDA_SUCCESS) return -1;  // not started
  if (context != nullptr) {
    CUdevice device = -1;
    return driver.device(&device) == CUDA_SUCCESS ? device : -1;
  }
  // A thread that has not said which uses GPU 0, if other threads do.
  unsigned flags = 0;
  int active = 0;
  return driver.primary(0, &flags, &active) == CUDA_SUCCESS && active != 0 ? 0 : -1;
}

void* allocate_on_gpu(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)),
        fmt::format("{} bytes of GPU memory", bytes));
  return memory;
}

void free_on_gpu(void* memory) noexcept { cudaFree(memory); }

void read_from_gpu(void* to, const void* from, std::size_t bytes, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone) {
    throw Error(
        ErrorCode::invalid_usage,
        "GPU memory is to be read by the host, which cannot be while its stream is captured "
        "into a graph");
  }
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on), "a copy from the GPU");
  check(cudaStreamSynchronize(on), "a copy from the GPU");
}

}  // namespace tutti

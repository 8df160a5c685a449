#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "transport/gpu/cuda_driver.h"
#include "transport/gpu/cuda_error.h"
#include "transport/gpu/gpu_memory.h"

namespace tutti {
namespace {

// Of the driver: the runtime's cudaGetDevice() would start it.
struct Functions {
  decltype(&::cuCtxGetCurrent) context = nullptr;
  decltype(&::cuCtxGetDevice) device = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) primary = nullptr;
  decltype(&::cuDeviceGetPCIBusId) address = nullptr;

  Functions() {
    find_in_cuda_driver(context, "cuCtxGetCurrent");
    find_in_cuda_driver(device, "cuCtxGetDevice");
    find_in_cuda_driver(primary, "cuDevicePrimaryCtxGetState");
    find_in_cuda_driver(address, "cuDeviceGetPCIBusId");
  }
};

const Functions& driver_functions() {
  static const Functions driver;
  return driver;
}

}  // namespace

int gpu_of_thread() {
  const Functions& driver = driver_functions();
  CUcontext context = nullptr;
  CUdevice device = -1;
  const bool has_one = driver.context != nullptr && driver.device != nullptr &&
                       driver.context(&context) == CUDA_SUCCESS && context != nullptr &&
                       driver.device(&device) == CUDA_SUCCESS;
  return has_one ? device : -1;
}

int current_gpu() {
  const int own = gpu_of_thread();
  if (own >= 0) return own;
  // A thread that has not said which uses GPU 0, if other threads do.
  const Functions& driver = driver_functions();
  unsigned flags = 0;
  int active = 0;
  return driver.primary != nullptr && driver.primary(0, &flags, &active) == CUDA_SUCCESS &&
                 active != 0
             ? 0
             : -1;
}

std::string gpu_address(int ordinal) {
  std::array<char, 32> text{};
  const auto function = driver_functions().address;
  if (function == nullptr || function(text.data(), text.size() - 1, ordinal) != CUDA_SUCCESS) {
    return "";
  }
  return text.data();
}

int gpu_count(std::string* why) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();  // so that a later call does not report it
  if (why != nullptr) *why = cudaGetErrorString(result);
  return 0;
}

void* allocate_on_gpu(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)),
             fmt::format("{} bytes of GPU memory", bytes));
  return memory;
}

void free_on_gpu(void* memory) noexcept { cudaFree(memory); }

void* duplicate_on_gpu(const void* memory, std::size_t bytes, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  void* copy = nullptr;
  check_cuda(cudaMallocAsync(&copy, std::max<std::size_t>(bytes, 1), on),
             fmt::format("{} bytes of GPU memory", bytes));
  const cudaError_t result = cudaMemcpyAsync(copy, memory, bytes, cudaMemcpyDeviceToDevice, on);
  if (result != cudaSuccess) free_duplicate(copy, stream);
  check_cuda(result, "a copy of a buffer");
  return copy;
}

void free_duplicate(void* memory, void* stream) noexcept {
  cudaFreeAsync(memory, static_cast<cudaStream_t>(stream));
}

void read_from_gpu(void* to, const void* from, std::size_t bytes, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone) {
    throw Error(
        ErrorCode::invalid_usage,
        "GPU memory is to be read by the host, which cannot be while its stream is captured "
        "into a graph");
  }
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on), "a copy from the GPU");
  check_cuda(cudaStreamSynchronize(on), "a copy from the GPU");
}

}  // namespace tutti

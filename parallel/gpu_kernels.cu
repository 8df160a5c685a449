// The kernels, by elements (gpu_elements.h). All of them are limited by memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/module.h"
#include "parallel/gpu_elements.h"
#include "parallel/gpu_kernels.h"
#include "tutti_parallel_cuda_interface.h"

namespace tutti::parallel {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 4096;

template <class Element>
__global__ void each(Element element, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    element(i);
  }
}

template <class T>
__global__ void squares(DataType type, const void* data, std::size_t count, double* sums) {
  __shared__ double of_thread[kThreads];
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  double sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const double value = gpu_elements::load<T>(type, data, i);
    sum += value * value;
  }
  of_thread[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] += of_thread[0];
}

cudaStream_t stream_of(Device::Stream stream) { return static_cast<cudaStream_t>(stream); }

void check() {
  const cudaError_t result = cudaGetLastError();
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::system,
              std::string("the launch of an engine's kernel: ") + cudaGetErrorString(result));
}

template <class... Arguments>
void load_kernel(void (*kernel)(Arguments...)) {
  cudaFuncAttributes attributes{};  // which are known only once it is loaded
  cudaFuncGetAttributes(&attributes, kernel);
  check();
}
template <class... Elements>
void load_each() {
  (load_kernel(each<Elements>), ...);
}

template <class Element>
void launch(const Element& element, std::size_t count, Device::Stream stream) {
  if (count == 0) return;
  const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  each<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(stream)>>>(element, count);
  check();
}

template <class Word>
void copy_words(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                std::size_t bytes, std::size_t rows, Device::Stream stream) {
  const std::size_t words = bytes / sizeof(Word);
  launch(gpu_elements::CopyRows<Word>{static_cast<std::byte*>(to), to_step,
                                      static_cast<const std::byte*>(from), from_step, words},
         words * rows, stream);
}

template <class T>
gpu_elements::Slice<T> slice_of(const Optimizer::Slice& s) {
  return {static_cast<T*>(s.master),
          {static_cast<T*>(s.state[0]), static_cast<T*>(s.state[1])},
          s.gradient_type,
          s.gradient,
          s.compute_type,
          s.compute};
}

class Kernels final : public GpuKernels {
 public:
  void load() const override {
    namespace e = gpu_elements;
    load_each<e::Convert<float>, e::Convert<double>, e::Add<float>, e::Add<double>,
              e::CopyRows<uint4>, e::CopyRows<std::uint32_t>, e::CopyRows<std::byte>,
              e::AdamW<float>, e::AdamW<double>, e::Sgd<float>, e::Sgd<double>>();
    load_kernel(squares<float>);
    load_kernel(squares<double>);
  }

  void convert(DataType from, const void* in, DataType to, void* out, std::size_t count,
               Device::Stream stream) const override {
    if (from == DataType::float64) {
      launch(gpu_elements::Convert<double>{from, in, to, out}, count, stream);
    } else {
      launch(gpu_elements::Convert<float>{from, in, to, out}, count, stream);
    }
  }

  void add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
           std::size_t count, Device::Stream stream) const override {
    if (type == DataType::float64) {
      launch(gpu_elements::Add<double>{type, to, values, divisor, before}, count, stream);
    } else {
      launch(gpu_elements::Add<float>{type, to, values, divisor, before}, count, stream);
    }
  }

  void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                 std::size_t bytes, std::size_t rows, Device::Stream stream) const override {
    // The longest words that all runs begin and end at.
    const std::size_t places = reinterpret_cast<std::uintptr_t>(to) |
                               reinterpret_cast<std::uintptr_t>(from) | to_step | from_step | bytes;
    if (places % sizeof(uint4) == 0) {
      copy_words<uint4>(to, to_step, from, from_step, bytes, rows, stream);
    } else if (places % sizeof(std::uint32_t) == 0) {
      copy_words<std::uint32_t>(to, to_step, from, from_step, bytes, rows, stream);
    } else {
      copy_words<std::byte>(to, to_step, from, from_step, bytes, rows, stream);
    }
  }

  void add_squares(DataType type, const void* data, std::size_t count, double* sums,
                   Device::Stream stream) const override {
    if (count == 0) return;
    if (type == DataType::float64) {
      squares<double><<<kPartialSums, kThreads, 0, stream_of(stream)>>>(type, data, count, sums);
    } else {
      squares<float><<<kPartialSums, kThreads, 0, stream_of(stream)>>>(type, data, count, sums);
    }
    check();
  }

  void adamw(const Optimizer::Slice& slice, const kernels::AdamWConstants& constants,
             Device::Stream stream) const override {
    if (slice.type == DataType::float64) {
      launch(gpu_elements::AdamW<double>(slice_of<double>(slice), constants), slice.count, stream);
    } else {
      launch(gpu_elements::AdamW<float>(slice_of<float>(slice), constants), slice.count, stream);
    }
  }

  void sgd(const Optimizer::Slice& slice, const kernels::SgdConstants& constants,
           Device::Stream stream) const override {
    if (slice.type == DataType::float64) {
      launch(gpu_elements::Sgd<double>(slice_of<double>(slice), constants), slice.count, stream);
    } else {
      launch(gpu_elements::Sgd<float>(slice_of<float>(slice), constants), slice.count, stream);
    }
  }
};

const Kernels instance;

}  // namespace

}  // namespace tutti::parallel

namespace tutti {

const Module tutti_module{TUTTI_PARALLEL_CUDA_INTERFACE,
                          static_cast<const parallel::GpuKernels*>(&parallel::instance)};

}  // namespace tutti

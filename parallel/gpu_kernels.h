// The arithmetic of engines on memory of a GPU: kernels on a stream, which nobody waits for. They
// are in libtutti_parallel_cuda.so, a module that is opened when they are first needed.
#pragma once

#include <cstddef>

#include "parallel/device.h"

namespace tutti::parallel {

/// The functions are as those of Device; the calling thread's GPU is that of the memory. They throw
/// Error(system).
class GpuKernels {
 public:
  /// Loads them on the calling thread's GPU. CUDA loads a kernel when it is first launched, and
  /// waits for kernels that run meanwhile: one of another rank's may wait for the rank that
  /// launches.
  virtual void load() const = 0;
  virtual void convert(DataType from, const void* in, DataType to, void* out, std::size_t count,
                       Device::Stream stream) const = 0;
  virtual void add(DataType type, void* to, const void* values, unsigned divisor,
                   const void* before, std::size_t count, Device::Stream stream) const = 0;
  virtual void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                         std::size_t bytes, std::size_t rows, Device::Stream stream) const = 0;
  /// Adds the squares of some elements to each of kPartialSums sums; together the sums have the
  /// squares of all elements. The same elements always go to the same sum.
  static constexpr std::size_t kPartialSums = 64;
  virtual void add_squares(DataType type, const void* data, std::size_t count, double* sums,
                           Device::Stream stream) const = 0;
  virtual void adamw(const Optimizer::Slice& slice, const kernels::AdamWConstants& constants,
                     Device::Stream stream) const = 0;
  virtual void sgd(const Optimizer::Slice& slice, const kernels::SgdConstants& constants,
                   Device::Stream stream) const = 0;

 protected:
  ~GpuKernels() = default;
};

/// Opens the module. Throws Error(system) where it is missing, or of another build.
const GpuKernels& gpu_kernels();

}  // namespace tutti::parallel

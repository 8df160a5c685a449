// The arithmetic of engines on memory of a GPU: kernels on a stream, which nobody waits for. A
// build without CUDA has none.
#pragma once

#include <cstddef>

#include "parallel/device.h"

namespace tutti::parallel::gpu_kernels {

/// Whether this build has them. Without them the others throw Error(internal).
bool exist();
/// Loads them on the calling thread's GPU. CUDA loads a kernel when it is first launched, and waits
/// for kernels that run meanwhile: one of another rank's may wait for the rank that launches.
void load();

/// As the functions of Device; the calling thread's GPU is that of the memory. They throw
/// Error(system).
void convert(DataType from, const void* in, DataType to, void* out, std::size_t count,
             Device::Stream stream);
void add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
         std::size_t count, Device::Stream stream);
void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
               std::size_t bytes, std::size_t rows, Device::Stream stream);
/// Adds the squares of some elements to each of kPartialSums sums; together the sums have the
/// squares of all elements. The same elements always go to the same sum.
inline constexpr std::size_t kPartialSums = 64;
void add_squares(DataType type, const void* data, std::size_t count, double* sums,
                 Device::Stream stream);
void adamw(const Optimizer::Slice& slice, const kernels::AdamWConstants& constants,
           Device::Stream stream);
void sgd(const Optimizer::Slice& slice, const kernels::SgdConstants& constants,
         Device::Stream stream);

}  // namespace tutti::parallel::gpu_kernels

// The kernels of the CUDA executor, as the CUDA runtime wants them named.
#pragma once

#include "core/types.h"
#include "execute/cuda/launch.h"

namespace tutti::device {

/// Threads of a block: enough loads under way to fill its share of the memory's bandwidth, and few
/// enough that a thread may have 128 registers.
inline constexpr int kThreads = 512;

/// For cudaLaunchKernel(): takes one Launch.
const void* kernel_of(DataType type, KernelKind kind);

// Of each kernel_type().
const void* kernel_of_uint8(KernelKind kind);
const void* kernel_of_uint32(KernelKind kind);
const void* kernel_of_uint64(KernelKind kind);
const void* kernel_of_float16(KernelKind kind);
const void* kernel_of_float32(KernelKind kind);
const void* kernel_of_float64(KernelKind kind);
const void* kernel_of_bfloat16(KernelKind kind);
const void* kernel_of_float8_e4m3(KernelKind kind);
const void* kernel_of_float8_e5m2(KernelKind kind);

}  // namespace tutti::device

// The kernels of the CUDA executor, as the CUDA runtime wants them named.
#pragma once

#include "core/types.h"

namespace tutti::device {

/// Threads of a block: enough loads under way to fill its share of the memory's bandwidth, and few
/// enough that a thread may have 128 registers.
inline constexpr int kThreads = 512;

/// For cudaLaunchKernel(): takes one Launch. `canonical`: sums and products of floats are in the
/// canonical order (canonical_order.h).
const void* kernel_of(DataType type, bool canonical);

const void* kernel_of_int8(bool canonical);
const void* kernel_of_uint8(bool canonical);
const void* kernel_of_int32(bool canonical);
const void* kernel_of_uint32(bool canonical);
const void* kernel_of_int64(bool canonical);
const void* kernel_of_uint64(bool canonical);
const void* kernel_of_float16(bool canonical);
const void* kernel_of_float32(bool canonical);
const void* kernel_of_float64(bool canonical);
const void* kernel_of_bfloat16(bool canonical);
const void* kernel_of_float8_e4m3(bool canonical);
const void* kernel_of_float8_e5m2(bool canonical);

}  // namespace tutti::device

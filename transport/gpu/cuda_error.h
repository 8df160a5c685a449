// Failed calls of the CUDA runtime as Errors.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

#include "core/error.h"

namespace tutti {

/// Throws Error(system) that says what was wanted, if the call has failed.
inline void check_cuda(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // so that a later call does not report it
  throw Error(ErrorCode::system, fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(result),
                                             cudaGetErrorName(result)));
}

}  // namespace tutti

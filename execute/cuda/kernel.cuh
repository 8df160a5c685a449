// The kernel: run_block() of step_logic.h, one thread block for each lane and copy. Instantiated
// for one data type in each kernels/<type>.cu; operators and protocols are chosen inside.
#pragma once

#include <cuda_runtime.h>

#include "execute/cuda/kernel.h"
#include "execute/cuda/step_logic.h"

namespace tutti::device {

class DeviceBlock {
 public:
  __device__ std::uint32_t thread() const { return threadIdx.x; }
  __device__ std::uint32_t threads() const { return kThreads; }  // known, so addresses are cheap
  __device__ bool all(bool fine) { return __syncthreads_and(fine ? 1 : 0) != 0; }
  __device__ void store_relaxed(std::uint64_t* p, std::uint64_t v) { device::store_relaxed(p, v); }
  __device__ void store_pair(std::uint64_t* p, Pair v) { device::store_pair(p, v); }
  __device__ void store_release(std::uint64_t* p, std::uint64_t v) { device::store_release(p, v); }

  __device__ std::uint32_t warp() const { return 32; }
  __device__ bool any(bool said) { return __any_sync(0xFFFFFFFFu, said) != 0; }
  // The threads of a line come together, so that theirs is one instruction.
  __device__ void converge() { __syncwarp(); }
  __device__ Pair load_line(const std::uint64_t* p) { return load_pair(p); }
  __device__ void store_line(std::uint64_t* p, Pair v) {
    if (p != nullptr) device::store_pair(p, v);
  }

  __device__ std::uint32_t draw(std::uint64_t* p) {
    if (threadIdx.x % 32 != 0) return 0;
    return static_cast<std::uint32_t>(device::fetch_add_relaxed(p, 1));
  }
  __device__ std::uint32_t of_first(std::uint32_t v) { return __shfl_sync(0xFFFFFFFFu, v, 0); }

  // The block has nothing else to do than to poll; a sleep would only add to the latency.
  __device__ void pause() {}
};

/// The body of each kernel.
template <class E, KernelKind kKind>
__device__ __forceinline__ void run_this_block(const Launch& launch) {
#if TUTTI_ON_DEVICE
  __shared__ BlockShared shared;
  DeviceBlock block;
  run_block<E, kKind>(block, shared, launch, blockIdx.x);
#endif
}

template <DataType type>
__global__ void __launch_bounds__(kThreads, 1) run_plan(const __grid_constant__ Launch launch) {
  run_this_block<ElementOf<type>, KernelKind::any>(launch);
}

template <DataType type>
__global__ void __launch_bounds__(kThreads, 1) run_words(const __grid_constant__ Launch launch) {
  run_this_block<ElementOf<type>, KernelKind::words>(launch);
}

template <DataType type>
__global__ void __launch_bounds__(kThreads, 1) run_windows(const __grid_constant__ Launch launch) {
  run_this_block<ElementOf<type>, KernelKind::windows>(launch);
}

template <DataType type>
__global__ void __launch_bounds__(kThreads, 1)
    run_in_canonical_order(const __grid_constant__ Launch launch) {
  run_this_block<InCanonicalOrder<ElementOf<type>>, KernelKind::canonical>(launch);
}

template <DataType type>
const void* kernel_address(KernelKind kind) {
  if constexpr (std::is_floating_point_v<typename ElementOf<type>::Wide>) {
    if (kind == KernelKind::canonical) {
      return reinterpret_cast<const void*>(&run_in_canonical_order<type>);
    }
  }
  if (kind == KernelKind::words) return reinterpret_cast<const void*>(&run_words<type>);
  if (kind == KernelKind::windows) return reinterpret_cast<const void*>(&run_windows<type>);
  return reinterpret_cast<const void*>(&run_plan<type>);
}

}  // namespace tutti::device

/// Defines kernel_of_<name>(), the kernels' addresses for the runtime.
#define TUTTI_KERNEL(name)                                                                       \
  namespace tutti::device {                                                                      \
  const void* kernel_of_##name(KernelKind kind) { return kernel_address<DataType::name>(kind); } \
  }

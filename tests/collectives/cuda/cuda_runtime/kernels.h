// What the runtime of threads (runtime.h) runs, and memory for it.
#pragma once

#include <cstddef>

#include "execute/cuda/launch.h"

namespace tutti::test {

/// Until all its blocks have ended. `function`: of kernel_of().
void run_kernel(const void* function, const device::Launch& launch, unsigned blocks);

void* allocate_for_kernels(std::size_t bytes);
void free_for_kernels(void* memory);
/// Whether `memory` lies in such memory.
bool is_for_kernels(const void* memory);

}  // namespace tutti::test

// libcuda.so.1 as far as the library itself asks it: a GPU with some memory, which can do nothing.
#include <cstddef>

#include "transport/gpu/gpu_driver_abi.h"

namespace abi = tutti::gpu_driver_abi;

extern "C" {

alignas(4096) std::byte memory_of_gpu_0[4096];

abi::PointerGetAttributes cuPointerGetAttributes;
int cuPointerGetAttributes(unsigned count, int* wanted, void** values, abi::Pointer pointer) {
  const bool is_ours = pointer - reinterpret_cast<abi::Pointer>(memory_of_gpu_0) < 4096;
  for (unsigned i = 0; i < count; ++i) {
    const int value = wanted[i] == abi::kMemoryType ? static_cast<int>(is_ours ? abi::kOfDevice : 0)
                      : wanted[i] == abi::kDeviceOrdinal ? (is_ours ? 0 : -1)
                                                         : 0;
    *static_cast<int*>(values[i]) = value;
  }
  return abi::kSuccess;
}

}  // extern "C"

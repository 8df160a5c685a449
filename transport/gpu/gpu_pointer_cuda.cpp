#include <cuda.h>

#include "transport/gpu/cuda_driver.h"
#include "transport/gpu/gpu_pointer.h"

namespace tutti {
namespace {

using GetAttributes = decltype(&::cuPointerGetAttributes);

GetAttributes find_function() {
  GetAttributes function = nullptr;
  find_in_cuda_driver(function, "cuPointerGetAttributes");
  return function;
}

/// What CUDA knows of a pointer.
struct Known {
  unsigned type = 0;  // 0: nothing
  unsigned managed = 0;
  int ordinal = -1;
};

Known known_of(const void* pointer) {
  static const GetAttributes get = find_function();
  Known known;
  if (get == nullptr || pointer == nullptr) return known;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&known.type, &known.managed, &known.ordinal};
  // All at once, because then a pointer that CUDA does not know is no error. One is that the driver
  // was not started.
  if (get(3, wanted, values, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS) return {};
  return known;
}

}  // namespace

int gpu_of(const void* pointer) {
  const Known known = known_of(pointer);
  return known.type == CU_MEMORYTYPE_DEVICE || known.managed != 0 ? known.ordinal : -1;
}

bool is_pinned(const void* pointer) { return known_of(pointer).type == CU_MEMORYTYPE_HOST; }

}  // namespace tutti

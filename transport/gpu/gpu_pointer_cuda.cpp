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

}  // namespace

int gpu_of(const void* pointer) {
  static const GetAttributes get = find_function();
  if (get == nullptr || pointer == nullptr) return -1;
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &managed, &ordinal};
  // All at once, because then a pointer that CUDA does not know is no error. One is that the driver
  // was not started.
  if (get(3, wanted, values, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS) return -1;
  return type == CU_MEMORYTYPE_DEVICE || managed != 0 ? ordinal : -1;
}

}  // namespace tutti

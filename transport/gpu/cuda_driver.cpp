#include "transport/gpu/cuda_driver.h"

#include "core/error.h"
#include "core/file_descriptor.h"
#include "transport/gpu/gpu_driver_abi.h"

namespace tutti {
namespace {

namespace abi = gpu_driver_abi;
static_assert(abi::kSuccess == CUDA_SUCCESS);
static_assert(abi::kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(abi::kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(abi::kDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(abi::kOfHost == CU_MEMORYTYPE_HOST && abi::kOfDevice == CU_MEMORYTYPE_DEVICE);
static_assert(std::is_same_v<abi::Pointer, CUdeviceptr>);
static_assert(std::is_pointer_v<CUcontext> && std::is_same_v<CUdevice, int>);
static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUpointer_attribute) == sizeof(int));
/// Whether functions have the same arguments, but for enumerators and pointers to what is hidden.
template <class F, class G>
inline constexpr bool kAlike = false;
template <class... A, class... B>
inline constexpr bool kAlike<CUresult(A...), int(B...)> = sizeof...(A) == sizeof...(B) &&
                                                          ((sizeof(A) == sizeof(B)) && ...);
static_assert(kAlike<decltype(::cuPointerGetAttributes), abi::PointerGetAttributes>);
static_assert(kAlike<decltype(::cuCtxGetCurrent), abi::CtxGetCurrent>);
static_assert(kAlike<decltype(::cuCtxGetDevice), abi::CtxGetDevice>);
static_assert(kAlike<decltype(::cuDevicePrimaryCtxGetState), abi::DevicePrimaryCtxGetState>);
static_assert(kAlike<decltype(::cuDeviceGetPCIBusId), abi::DeviceGetPCIBusId>);

// Of a function's name as the header renames it (cuMemGetAddressRange is a macro for ..._v2).
#define TUTTI_NAME(name) TUTTI_TEXT(name)
#define TUTTI_TEXT(name) #name

CudaDriver load() {
  void* const library = gpu_driver();
  if (library == nullptr) {
    throw Error(ErrorCode::system, std::string("there is no CUDA driver: ") + dlerror());
  }
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) {
      throw Error(ErrorCode::system, std::string("the CUDA driver is too old: it has no ") + name);
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  CudaDriver d{};
  find(d.init, TUTTI_NAME(cuInit));
  find(d.get_error_string, TUTTI_NAME(cuGetErrorString));
  find(d.get_address_range, TUTTI_NAME(cuMemGetAddressRange));
  find(d.get_attributes, TUTTI_NAME(cuPointerGetAttributes));
  find(d.ipc_get, TUTTI_NAME(cuIpcGetMemHandle));
  find(d.ipc_open, TUTTI_NAME(cuIpcOpenMemHandle));
  find(d.ipc_close, TUTTI_NAME(cuIpcCloseMemHandle));
  find(d.retain, TUTTI_NAME(cuMemRetainAllocationHandle));
  find(d.release, TUTTI_NAME(cuMemRelease));
  find(d.export_handle, TUTTI_NAME(cuMemExportToShareableHandle));
  find(d.import_handle, TUTTI_NAME(cuMemImportFromShareableHandle));
  find(d.reserve, TUTTI_NAME(cuMemAddressReserve));
  find(d.free_address, TUTTI_NAME(cuMemAddressFree));
  find(d.map, TUTTI_NAME(cuMemMap));
  find(d.unmap, TUTTI_NAME(cuMemUnmap));
  find(d.set_access, TUTTI_NAME(cuMemSetAccess));
  find(d.get_access, TUTTI_NAME(cuMemGetAccess));
  occupy_standard_descriptors();
  if (const CUresult result = d.init(0); result != CUDA_SUCCESS) {
    throw Error(ErrorCode::system, "the CUDA driver does not start: " + d.text(result));
  }
  return d;
}

}  // namespace

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver = load();  // tried again after an exception
  return driver;
}

std::string CudaDriver::text(CUresult result) const {
  const char* text = nullptr;
  if (get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) {
    return "error " + std::to_string(static_cast<int>(result));
  }
  return text;
}

}  // namespace tutti

// The functions of the CUDA driver that libtutti_cuda.so calls itself, from libcuda.so.1. (The
// runtime API, which is linked statically, has none of them.)
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "transport/gpu/gpu_driver.h"

namespace tutti {

struct CudaDriver {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorString) get_error_string;
  decltype(&::cuMemGetAddressRange) get_address_range;
  decltype(&::cuPointerGetAttributes) get_attributes;
  decltype(&::cuIpcGetMemHandle) ipc_get;
  decltype(&::cuIpcOpenMemHandle) ipc_open;
  decltype(&::cuIpcCloseMemHandle) ipc_close;
  decltype(&::cuMemRetainAllocationHandle) retain;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemExportToShareableHandle) export_handle;
  decltype(&::cuMemImportFromShareableHandle) import_handle;
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemAddressFree) free_address;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) set_access;
  decltype(&::cuMemGetAccess) get_access;

  /// Throws Error(system) where there is no driver, or one that lacks a function.
  static const CudaDriver& get();
  /// "invalid argument", ...
  std::string text(CUresult result) const;
};

/// A function that not every driver has; null where there is none.
void find_in_cuda_driver(auto*& function, const char* name) {
  void* const library = gpu_driver();
  function =
      library == nullptr
          ? nullptr
          : reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
}

}  // namespace tutti

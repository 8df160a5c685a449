// The functions of the CUDA driver that Tutti calls itself, from libcuda.so.1, which is looked for
// when the first is needed. (The runtime API, which is linked statically, has none of them.)
#pragma once

#include <cuda.h>

#include <string>

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

  /// Throws Error(system) where there is no driver, or one that lacks a function.
  static const CudaDriver& get();
  /// "invalid argument", ...
  std::string text(CUresult result) const;
};

}  // namespace tutti

// The part of the CUDA driver's interface that gpu_driver.cpp uses, declared here as its header
// comes with CUDA's toolkit. cuda_driver.cpp compares both.
#pragma once

namespace tutti::gpu_driver_abi {

inline constexpr int kSuccess = 0;
// CUpointer_attribute
inline constexpr int kMemoryType = 2;
inline constexpr int kIsManaged = 8;
inline constexpr int kDeviceOrdinal = 9;
// CUmemorytype
inline constexpr unsigned kOfHost = 1;
inline constexpr unsigned kOfDevice = 2;

/// CUdeviceptr
using Pointer = unsigned long long;
// CUcontext is a pointer; CUresult, CUdevice and CUpointer_attribute are integers of this size.
using PointerGetAttributes = int(unsigned count, int* wanted, void** values, Pointer pointer);
using CtxGetCurrent = int(void** context);
using CtxGetDevice = int(int* device);
using DevicePrimaryCtxGetState = int(int device, unsigned* flags, int* active);
using DeviceGetPCIBusId = int(char* text, int length, int device);

}  // namespace tutti::gpu_driver_abi

#include "transport/gpu/cuda_rdma.h"

#include <cuda.h>
#include <fmt/format.h>

#include "core/error.h"
#include "transport/gpu/cuda_driver.h"

namespace tutti {
namespace {

// Newer than the oldest driver that Tutti runs on; null where it has none.
struct Functions {
  decltype(&::cuDeviceGet) device = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
  decltype(&::cuMemGetHandleForAddressRange) handle = nullptr;
  decltype(&::cuFlushGPUDirectRDMAWrites) flush = nullptr;

  Functions() {
    find_in_cuda_driver(device, "cuDeviceGet");
    find_in_cuda_driver(attribute, "cuDeviceGetAttribute");
    find_in_cuda_driver(handle, "cuMemGetHandleForAddressRange");
    find_in_cuda_driver(flush, "cuFlushGPUDirectRDMAWrites");
  }
};

const Functions& functions() {
  static const Functions found;
  return found;
}

/// 0, where the driver knows nothing of it.
int attribute(CUdevice_attribute which, int device) {
  const Functions& driver = functions();
  CUdevice gpu = 0;
  int value = 0;
  if (driver.device == nullptr || driver.attribute == nullptr ||
      driver.device(&gpu, device) != CUDA_SUCCESS ||
      driver.attribute(&value, which, gpu) != CUDA_SUCCESS) {
    return 0;
  }
  return value;
}

}  // namespace

FileDescriptor export_dma_buf(const void* memory, std::size_t bytes, int device) {
  const CudaDriver& driver = CudaDriver::get();
  if (functions().handle == nullptr ||
      attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 0) {
    throw Error(ErrorCode::system,
                "the driver gives no dma-buf of a GPU's memory (it needs the open kernel modules, "
                "and Linux 5.12)");
  }
  int fd = -1;
  const CUresult result = functions().handle(&fd, reinterpret_cast<CUdeviceptr>(memory), bytes,
                                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::system, fmt::format("the driver gives no dma-buf of {} bytes of a GPU's "
                                               "memory: {}",
                                               bytes, driver.text(result)));
  }
  return FileDescriptor(fd);
}

RdmaOrder rdma_order(int device) {
  if (attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device) >=
      CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) {
    return RdmaOrder::always;
  }
  const int options = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device);
  const bool flushes = (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  return flushes && functions().flush != nullptr ? RdmaOrder::with_flush : RdmaOrder::unknown;
}

void flush_rdma_writes() {
  const CUresult result = functions().flush(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  if (result == CUDA_SUCCESS) return;
  throw Error(ErrorCode::system, "cuFlushGPUDirectRDMAWrites: " + CudaDriver::get().text(result));
}

}  // namespace tutti

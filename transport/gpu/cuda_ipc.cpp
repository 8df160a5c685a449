#include "transport/gpu/cuda_ipc.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "transport/gpu/cuda_driver.h"
#include "transport/gpu/current_gpu.h"

namespace tutti {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

/// What a failed attempt leaves is put back, so that the next kind begins anew.
class Attempt {
 public:
  Attempt(const CudaDriver& driver, CUmemGenericAllocationHandle memory)
      : driver_(driver), memory_(memory) {}
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() {
    if (!kept_ && mapped_ != 0) driver_.unmap(at_, mapped_);
    if (!kept_ && reserved_ != 0) driver_.free_address(at_, reserved_);
    driver_.release(memory_);  // a mapping keeps the memory
  }

  CUresult map(std::size_t bytes, int device) {
    CUresult result = driver_.reserve(&at_, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    reserved_ = bytes;
    result = driver_.map(at_, bytes, 0, memory_, 0);
    if (result != CUDA_SUCCESS) return result;
    mapped_ = bytes;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver_.set_access(at_, bytes, &access, 1);
    kept_ = result == CUDA_SUCCESS;
    return result;
  }
  std::byte* base() const { return reinterpret_cast<std::byte*>(at_); }

 private:
  const CudaDriver& driver_;
  CUmemGenericAllocationHandle memory_;
  CUdeviceptr at_ = 0;
  std::size_t reserved_ = 0, mapped_ = 0;
  bool kept_ = false;
};

}  // namespace

// cudaMalloc's memory has an id that no other allocation ever gets. Memory of the virtual memory
// functions is known by its handle, which cannot be another one's while it is retained.
CudaAllocation cuda_allocation_of(const void* memory) {
  const CudaDriver& driver = CudaDriver::get();
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (driver.get_address_range(&base, &size, address(memory)) != CUDA_SUCCESS) return {};
  CudaAllocation a;
  a.base = reinterpret_cast<std::byte*>(base);
  a.bytes = size;
  CUmemGenericAllocationHandle allocation{};
  if (driver.retain(&allocation, const_cast<void*>(memory)) == CUDA_SUCCESS) {
    a.id = allocation;
    // The handle may be 0, so this holds something else that is not null.
    a.hold = std::shared_ptr<const void>(
        &driver, [&driver, allocation](const void*) { driver.release(allocation); });
    return a;
  }
  unsigned long long id = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* values[] = {&id};
  if (driver.get_attributes(1, wanted, values, address(memory)) != CUDA_SUCCESS) return {};
  a.id = id;
  return a;
}

bool cuda_can_address(int device, const void* memory) {
  const CudaDriver& driver = CudaDriver::get();
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  // Memory of the virtual memory functions: the code that mapped it has said which GPUs may use it.
  unsigned long long access = 0;
  if (driver.get_access(&access, &location, address(memory)) == CUDA_SUCCESS) {
    return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  // What cudaMalloc() gave, but not what came from a pool (cudaMallocAsync), which has its own
  // list.
  unsigned legacy = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&legacy};
  return driver.get_attributes(1, wanted, values, address(memory)) == CUDA_SUCCESS && legacy != 0;
}

CudaExport export_cuda_memory(const void* memory, std::size_t bytes) {
  const CudaDriver& driver = CudaDriver::get();
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (const CUresult result = driver.get_address_range(&base, &size, address(memory));
      result != CUDA_SUCCESS) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is no memory of a GPU: {}", memory, driver.text(result)));
  }
  CudaExport e;
  e.handle.bytes = size;
  e.handle.offset = address(memory) - base;
  if (bytes > size - e.handle.offset) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} bytes at {} reach beyond their allocation of {} bytes, of which "
                            "they begin at byte {}; a window must lie in one allocation",
                            bytes, memory, size, e.handle.offset));
  }
  const auto note = [&](const char* kind, CUresult result) {
    if (result == CUDA_SUCCESS) return true;
    e.why += fmt::format("{}{}: {}", e.why.empty() ? "" : "; ", kind, driver.text(result));
    return false;
  };
  static_assert(sizeof(CUipcMemHandle) == sizeof e.handle.legacy);
  static_assert(sizeof(CUmemFabricHandle) == sizeof e.handle.fabric);
  CUipcMemHandle legacy{};
  if (note("legacy", driver.ipc_get(&legacy, base))) {
    std::memcpy(e.handle.legacy.data(), &legacy, sizeof legacy);
    e.handle.kinds |= CudaMemoryHandle::kLegacy;
  }
  CUmemGenericAllocationHandle allocation{};
  if (note("virtual memory", driver.retain(&allocation, reinterpret_cast<void*>(base)))) {
    int fd = -1;
    if (note("fd",
             driver.export_handle(&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))) {
      e.fd = FileDescriptor(fd);
      e.handle.kinds |= CudaMemoryHandle::kFd;
    }
    CUmemFabricHandle fabric{};
    if (note("fabric", driver.export_handle(&fabric, allocation, CU_MEM_HANDLE_TYPE_FABRIC, 0))) {
      std::memcpy(e.handle.fabric.data(), &fabric, sizeof fabric);
      e.handle.kinds |= CudaMemoryHandle::kFabric;
    }
    driver.release(allocation);
  }
  return e;
}

CudaImport::CudaImport(const CudaMemoryHandle& handle, const FileDescriptor& fd, int device)
    : bytes_(handle.bytes), offset_(handle.offset), device_(device) {
  if (handle.bytes == 0 || handle.offset > handle.bytes) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a peer's memory handle makes no sense: byte {} of {}", handle.offset,
                            handle.bytes));
  }
  const CudaDriver& driver = CudaDriver::get();
  std::string why;
  const auto done = [&](CudaMemoryHandle::Kind kind, const char* text, CUresult result) {
    kind_ = kind;
    if (result == CUDA_SUCCESS) return true;
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", text, driver.text(result));
    return false;
  };
  const CurrentGpu current(device);
  if ((handle.kinds & CudaMemoryHandle::kLegacy) != 0) {
    CUipcMemHandle legacy;
    std::memcpy(&legacy, handle.legacy.data(), sizeof legacy);
    CUdeviceptr at = 0;
    if (done(CudaMemoryHandle::kLegacy, "legacy",
             driver.ipc_open(&at, legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) {
      // The peer's word is not taken for how long it is, where the driver knows.
      CUdeviceptr base = 0;
      std::size_t size = 0;
      if (driver.get_address_range(&base, &size, at) == CUDA_SUCCESS && size < handle.bytes) {
        driver.ipc_close(at);
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("a peer says that an allocation of {} bytes has {}", size, handle.bytes));
      }
      base_ = reinterpret_cast<std::byte*>(at);
      return;
    }
  }
  const auto map = [&](CudaMemoryHandle::Kind kind, const char* text, void* shared,
                       CUmemAllocationHandleType type) {
    CUmemGenericAllocationHandle memory{};
    if (!done(kind, text, driver.import_handle(&memory, shared, type))) return false;
    Attempt attempt(driver, memory);
    if (!done(kind, text, attempt.map(handle.bytes, device))) return false;
    base_ = attempt.base();
    mapped_ = handle.bytes;
    return true;
  };
  if ((handle.kinds & CudaMemoryHandle::kFd) != 0 && fd) {
    // The driver takes the number itself for a pointer.
    void* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.fd()));
    if (map(CudaMemoryHandle::kFd, "fd", number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return;
  }
  if ((handle.kinds & CudaMemoryHandle::kFabric) != 0) {
    CUmemFabricHandle fabric;
    std::memcpy(&fabric, handle.fabric.data(), sizeof fabric);
    if (map(CudaMemoryHandle::kFabric, "fabric", &fabric, CU_MEM_HANDLE_TYPE_FABRIC)) return;
  }
  throw Error(ErrorCode::system,
              fmt::format("a peer's GPU memory cannot be mapped: {}",
                          why.empty() ? "it came with no handle that can be used here" : why));
}

CudaImport::~CudaImport() {
  const CudaDriver& driver = CudaDriver::get();
  const CUdeviceptr at = address(base_);
  // Of the context that has it mapped, which need not be this thread's.
  try {
    const CurrentGpu current(device_);
    if (kind_ == CudaMemoryHandle::kLegacy) {
      driver.ipc_close(at);
    } else {
      driver.unmap(at, mapped_);
      driver.free_address(at, mapped_);
    }
  } catch (const Error&) {  // the process ends
  }
}

}  // namespace tutti

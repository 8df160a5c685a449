// Memory: its kind, ncclMemAlloc, and registration. ncclMemAlloc gives memory of the thread's GPU;
// where CUDA is not in use, of the host, as a window, which other ranks map. Registering is
// remembered and otherwise nothing (windows.h).
#include "bindings/nccl/memory.h"

#include <memory>
#include <mutex>
#include <set>

#include "bindings/nccl/comm.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/result.h"
#include "core/memory.h"
#include "core/window_memory.h"
#include "transport/gpu/cuda_module.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti::nccl {

MemoryKind memory_of(const void* pointer) {
  return gpu_of(pointer) >= 0 ? MemoryKind::device : MemoryKind::host;
}

namespace {

/// What ncclMemAlloc has made on GPUs.
class OnGpus {
 public:
  void* allocate(std::size_t bytes) {
    void* const memory = cuda().allocate(bytes);
    const std::lock_guard lock(mutex_);
    made_.insert(memory);
    return memory;
  }
  /// False for other memory.
  bool free(void* memory) {
    {
      const std::lock_guard lock(mutex_);
      if (made_.erase(memory) == 0) return false;
    }
    cuda().free(memory);
    return true;
  }

 private:
  std::mutex mutex_;
  std::set<void*> made_;
};

OnGpus& on_gpus() {
  static auto* const instance = new OnGpus;  // users may free while the process ends
  return *instance;
}

/// A handle that ends with its communicator.
void* register_memory(ncclComm& comm, void* pointer) {
  const std::lock_guard lock(comm.mutex);
  comm.registrations.insert(pointer);
  return pointer;
}

void deregister_memory(ncclComm& comm, void* handle) {
  if (handle == nullptr) return;
  const std::lock_guard lock(comm.mutex);
  const auto found = comm.registrations.find(handle);
  if (found == comm.registrations.end()) {
    refuse_usage("the handle is not of a registration with this communicator");
  }
  comm.registrations.erase(found);
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  return guarded("ncclMemAlloc", [&] {
    require(ptr, "ptr");
    *ptr = tutti::current_gpu() >= 0 ? on_gpus().allocate(size) : tutti::allocate(size);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclMemFree, (void* ptr)) {
  return guarded("ncclMemFree", [&] {
    if (on_gpus().free(ptr)) return ncclSuccess;
    if (ptr != nullptr && tutti::find_window(ptr, 1).base != ptr) {
      refuse_argument("the pointer does not come from ncclMemAlloc, or was freed before");
    }
    tutti::deallocate(ptr);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommRegister,
         (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  return guarded("ncclCommRegister", [&] {
    require(handle, "handle");
    require(buff, "buff");
    if (size == 0) refuse_argument("the argument size is 0");
    *handle = register_memory(made(comm), buff);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  return guarded("ncclCommDeregister", [&] {
    deregister_memory(checked(comm), handle);
    return ncclSuccess;
  });
}

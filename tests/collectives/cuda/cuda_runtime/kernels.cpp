#include "tests/collectives/cuda/cuda_runtime/kernels.h"

#include <map>
#include <mutex>

#include "core/error.h"
#include "execute/cuda/kernel.h"
#include "tests/collectives/cuda/cuda_host_device.h"
#include "transport/gpu/cuda_ipc.h"

namespace tutti::test {
namespace {

/// A kernel's address is that of its type's place here.
char places[kDataTypes];

HostDevice& gpu() {
  static auto* const instance = new HostDevice;  // streams may end with the process
  return *instance;
}

}  // namespace

void run_kernel(const void* function, const device::Launch& launch, unsigned blocks) {
  const auto type = static_cast<DataType>(static_cast<const char*>(function) - places);
  gpu().launch(launch, type, blocks, nullptr);
}

namespace {
std::mutex mutex;
auto& pieces = *new std::map<const std::byte*, std::size_t>;
}  // namespace

void* allocate_for_kernels(std::size_t bytes) {
  std::byte* const memory = gpu().allocate(bytes);
  const std::lock_guard lock(mutex);
  pieces[memory] = bytes;
  return memory;
}
void free_for_kernels(void* memory) {
  const std::lock_guard lock(mutex);
  pieces.erase(static_cast<std::byte*>(memory));
  gpu().deallocate(static_cast<std::byte*>(memory));
}
bool is_for_kernels(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex);
  auto piece = pieces.upper_bound(at);
  return piece != pieces.begin() && at < (--piece)->first + piece->second;
}

}  // namespace tutti::test

namespace tutti::device {

#define TUTTI_PLACE(type)                                   \
  const void* kernel_of_##type(KernelKind) {                \
    return &test::places[static_cast<int>(DataType::type)]; \
  }
TUTTI_PLACE(uint8)
TUTTI_PLACE(uint32)
TUTTI_PLACE(uint64)
TUTTI_PLACE(float16)
TUTTI_PLACE(float32)
TUTTI_PLACE(float64)
TUTTI_PLACE(bfloat16)
TUTTI_PLACE(float8_e4m3)
TUTTI_PLACE(float8_e5m2)

}  // namespace tutti::device

// What asks the driver. All memory is every GPU's, and there is no other process.
namespace tutti {

bool cuda_can_address(int, const void*) { return true; }
CudaAllocation cuda_allocation_of(const void*) { return {}; }
CudaExport export_cuda_memory(const void*, std::size_t) { return {}; }
CudaImport::CudaImport(const CudaMemoryHandle&, const FileDescriptor&, int) {
  throw Error(ErrorCode::system, "there is no other process");
}
CudaImport::~CudaImport() = default;

}  // namespace tutti

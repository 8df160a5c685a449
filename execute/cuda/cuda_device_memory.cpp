// Memory of a CudaDevice: its own and the host's, that of other processes, and what has to end
// before memory is freed.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "execute/cuda/cuda_device.h"
#include "execute/cuda/cuda_scopes.h"
#include "transport/gpu/cuda_error.h"
#include "transport/gpu/current_gpu.h"

namespace tutti::device {

std::byte* CudaDevice::allocate(std::size_t bytes) {
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  bytes = std::max<std::size_t>(bytes, 1);
  void* memory = reuse(bytes);
  if (memory == nullptr) {
    check_cuda(cudaMalloc(&memory, bytes), fmt::format("{} bytes of device memory", bytes));
  }
  try {
    // Zero before anybody uses it, on whatever stream.
    aside([&](void* stream) {
      check_cuda(cudaMemsetAsync(memory, 0, bytes, stream_of(stream)), "cudaMemset");
      sizes_[memory] = bytes;
    });
  } catch (const Error&) {
    give_back({memory, bytes});
    throw;
  }
  return static_cast<std::byte*>(memory);
}

void CudaDevice::deallocate(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto size = sizes_.extract(memory);
    bytes = size.mapped();
  }
  give_back({memory, bytes});
}

bool CudaDevice::is_idle() const {
  const auto has_ended = [](const auto& noted) {
    if (cudaEventQuery(event_of(noted.second)) == cudaSuccess) return true;
    cudaGetLastError();  // so that a later call does not report it
    return false;
  };
  return unnoted_.empty() && std::ranges::all_of(noted_, has_ended);
}

void CudaDevice::free(const Unused& unused) noexcept {
  if (unused.bytes > 0) {
    cudaFree(unused.memory);
  } else {
    cudaFreeHost(unused.memory);
  }
}

void CudaDevice::give_back(const Unused& unused) noexcept {
  const Relaxed relaxed;
  const std::lock_guard lock(mutex_);
  unused_.push_back(unused);
  if (!is_idle()) return;
  for (const Unused& u : unused_) free(u);
  unused_.clear();
}

void* CudaDevice::reuse(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(unused_, bytes, &Unused::bytes);
  if (found == unused_.end()) return nullptr;
  void* const memory = found->memory;
  unused_.erase(found);
  return memory;
}

Control* CudaDevice::allocate_control() {
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  void* memory = nullptr;
  // Portable: with unified addressing the kernel uses the host's address.
  check_cuda(cudaHostAlloc(&memory, sizeof(Control), cudaHostAllocMapped | cudaHostAllocPortable),
             "host memory that kernels can write");
  return new (memory) Control{};
}

void CudaDevice::deallocate_control(Control* control) noexcept { give_back({control, 0}); }

void CudaDevice::pin(std::byte* memory, std::size_t bytes) {
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  check_cuda(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
             fmt::format("{} bytes of host memory that kernels can write", bytes));
  void* seen = nullptr;
  cudaError_t result = cudaHostGetDevicePointer(&seen, memory, 0);
  // Some platforms give registered memory another address for kernels.
  if (result == cudaSuccess && seen != memory) result = cudaErrorNotSupported;
  if (result != cudaSuccess) cudaHostUnregister(memory);
  check_cuda(result, "host memory that kernels can write under its own address");
}

void CudaDevice::unpin(std::byte* memory) noexcept {
  const Relaxed relaxed;
  cudaHostUnregister(memory);
}

std::size_t CudaDevice::free_bytes() {
  const CurrentGpu current(ordinal_);
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

bool CudaDevice::can_address(const std::byte* memory) { return cuda_can_address(ordinal_, memory); }

CudaAllocation CudaDevice::allocation(const std::byte* memory) {
  const CurrentGpu current(ordinal_);
  return cuda_allocation_of(memory);
}

CudaExport CudaDevice::share(const std::byte* memory, std::size_t bytes) {
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  return export_cuda_memory(memory, bytes);
}

Mapping CudaDevice::map(const CudaMemoryHandle& handle, const FileDescriptor& fd) {
  const Relaxed relaxed;
  // Let go of on any thread, also while one of its streams is captured.
  const std::shared_ptr<const CudaImport> import(new CudaImport(handle, fd, ordinal_),
                                                 [](const CudaImport* i) {
                                                   const Relaxed while_unmapped;
                                                   delete i;
                                                 });
  return {import, import->data(), import->bytes()};
}

FileDescriptor CudaDevice::dma_buf(const std::byte* memory, std::size_t bytes) {
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  return export_dma_buf(memory, bytes, ordinal_);
}

void CudaDevice::flush_rdma_writes() {
  const CurrentGpu current(ordinal_);
  tutti::flush_rdma_writes();
}

Mark CudaDevice::note(Stream stream, const void* owner) {
  const CurrentGpu current(ordinal_);
  const StreamPlace at = place(stream);
  Event event = record(stream);  // without the mutex, as it may wait as a launch does
  if (at.capture == 0) {
    const std::lock_guard lock(mutex_);
    noted_[{owner, at.stream}] = event;
  }
  forget_unnoted(stream);
  return {at, std::move(event)};
}

void CudaDevice::drain(const void* owner) noexcept {
  const Relaxed relaxed;
  std::vector<Event> events;
  const auto each = [&](const auto& f) {
    const std::lock_guard lock(mutex_);
    for (auto n = noted_.lower_bound({owner, 0}); n != noted_.end() && n->first.first == owner;) {
      f(n++);
    }
  };
  each([&](auto noted) { events.push_back(noted->second); });
  for (const Event& event : events) {
    cudaEventSynchronize(event_of(event));  // an error of the user's kernels is theirs to see
  }
  // Until now they say that something runs.
  each([&](auto noted) { noted_.erase(noted); });
}

}  // namespace tutti::device

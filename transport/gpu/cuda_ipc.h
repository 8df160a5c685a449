// GPU memory of one process, mapped into another: the exporter sends every kind of handle that the
// driver offers for a piece of memory, and the importer takes the first that works.
//
//     legacy   cudaMalloc memory, processes of one host
//     fd       memory of the driver's virtual memory functions (PyTorch's expandable segments,
//              ncclMemAlloc); a file descriptor, handed over a unix socket
//     fabric   the same where an NVLink fabric spans hosts (and IMEX runs)
//
// A handle stands for a whole allocation; the pointer's place in it is sent along, so ranks may
// pass any pointer, each another one. The functions are of libtutti_cuda.so (cuda_module.h); the
// library knows what they return.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/file_descriptor.h"

namespace tutti {

/// What is sent to a peer; plain bytes. A descriptor may belong to it (CudaExport::fd).
struct CudaMemoryHandle {
  enum Kind : std::uint32_t { kLegacy = 1, kFd = 2, kFabric = 4 };
  std::uint32_t kinds = 0;  // bits; none: this memory cannot be shared
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;   // of the allocation
  std::uint64_t offset = 0;  // of the pointer in it
  std::array<std::byte, 64> legacy{};
  std::array<std::byte, 64> fabric{};
};

struct CudaExport {
  CudaMemoryHandle handle;
  FileDescriptor fd;  // with kFd
  std::string why;    // what the driver refused, in words; for errors of the importer
};

/// The allocation that a pointer lies in.
struct CudaAllocation {
  std::byte* base = nullptr;
  std::size_t bytes = 0;  // 0: CUDA does not know this memory (any more)
  /// Never another allocation's at this base in this process, as long as `hold` lives. `hold` may
  /// keep the memory itself, but not its address, after the user has freed it.
  std::uint64_t id = 0;
  std::shared_ptr<const void> hold;
};
/// Of the current device. Throws Error(system) without a driver. From any thread.
CudaAllocation cuda_allocation_of(const void* memory);

/// Whether kernels of GPU `device` can read and write `memory` of another GPU of this process. The
/// kernels have access to that GPU's cudaMalloc() memory already. Throws Error(system) without a
/// driver.
bool cuda_can_address(int device, const void* memory);

/// Handles for the allocation in which `memory` lies, which must hold all `bytes`. The allocation
/// must outlive the imports. Throws Error: system without a driver; invalid_argument where `memory`
/// is not the GPU's or spans several allocations.
CudaExport export_cuda_memory(const void* memory, std::size_t bytes);

/// A peer's allocation, mapped for a device of this process for as long as this lives.
class CudaImport {
 public:
  /// `fd`: what came with the handle, or none; `device`: CUDA's ordinal. Throws Error(system) that
  /// names every kind and why it was refused, and invalid_argument for a handle that makes no
  /// sense.
  CudaImport(const CudaMemoryHandle& handle, const FileDescriptor& fd, int device);
  CudaImport(const CudaImport&) = delete;
  CudaImport& operator=(const CudaImport&) = delete;
  ~CudaImport();

  /// The pointer that the peer exported, as this process's kernels address it.
  std::byte* data() const { return base_ + offset_; }
  /// The allocation from there on.
  std::size_t bytes() const { return bytes_ - offset_; }
  CudaMemoryHandle::Kind kind() const { return kind_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
  std::size_t mapped_ = 0;
  CudaMemoryHandle::Kind kind_ = CudaMemoryHandle::kLegacy;
  int device_ = 0;
};

}  // namespace tutti

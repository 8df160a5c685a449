// Memory of a GPU that network cards read and write by themselves (GPUDirect RDMA): how they get to
// know it, and when kernels see what they have written.
//
// A network card's writes reach a GPU by a way of their own. A kernel that hears from the host that
// data has arrived may look before it is there. Some GPUs keep that order themselves; of others the
// driver can be asked to wait until all has arrived; of the rest nobody knows. The functions are of
// libtutti_cuda.so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/file_descriptor.h"

namespace tutti {

/// When a kernel sees what a network card has written to its GPU before the host told it so.
enum class RdmaOrder : std::uint8_t {
  unknown,     // perhaps too late
  with_flush,  // after a flush that comes before the host's word
  always,
};

/// Of whole pages of memory that cudaMalloc() gave on GPU `device`, CUDA's ordinal: a dma-buf that
/// begins where the memory does. Throws Error(system) where there is no driver, or it cannot.
FileDescriptor export_dma_buf(const void* memory, std::size_t bytes, int device);

/// As the driver says.
RdmaOrder rdma_order(int device);

/// RdmaOrder::with_flush: returns when all that has been written to the thread's current GPU is
/// there for its kernels. Throws Error(system).
void flush_rdma_writes();

}  // namespace tutti

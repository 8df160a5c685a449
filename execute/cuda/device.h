// A device as the executor of collectives needs it: memory that its kernels see, and launches; and
// as engines need it (engine_device.h). cuda_device.h is the real one; the tests have some that run
// blocks as threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "core/types.h"
#include "execute/cuda/engine_device.h"
#include "execute/cuda/launch.h"
#include "transport/gpu/cuda_ipc.h"
#include "transport/gpu/cuda_rdma.h"

namespace tutti::device {

/// Where work on a stream goes.
struct StreamPlace {
  std::uint64_t stream = 0;  // a number that no other stream has; while captured, none of the graph
  std::uint64_t capture = 0;  // the graph that it is recorded into; 0: it runs
  friend bool operator==(const StreamPlace&, const StreamPlace&) = default;
};

/// The end of some work on a stream.
struct Mark {
  StreamPlace place;
  Event event;  // streams may be ordered by it; if captured, those of the same graph
};

/// Another process's memory, for as long as `owner` lives.
struct Mapping {
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Device : public EngineDevice {
 public:
  /// Zeroed memory of the host that kernels can read and write while they run.
  virtual Control* allocate_control() = 0;
  virtual void deallocate_control(Control* control) noexcept = 0;
  /// Makes whole pages of the host's memory known to kernels, which read and write them while they
  /// run, under the address that they have here. Throws Error(system).
  virtual void pin(std::byte* memory, std::size_t bytes) = 0;
  /// What was pinned from `memory` on; when no kernel uses it any more.
  virtual void unpin(std::byte* memory) noexcept = 0;

  virtual StreamPlace place(Stream stream) = 0;
  /// Whether work on `stream` is being recorded into a graph rather than run.
  bool is_capturing(Stream stream) { return place(stream).capture != 0; }
  /// Copies to memory of the device that nothing uses which was launched so far; has been done on
  /// return, and waits for no kernel. Also while a stream of this thread is captured.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  /// Runs `blocks` blocks of the kernel for `type` after what is on `stream`; does not wait. Is
  /// followed by note().
  virtual void launch(const Launch& launch, DataType type, std::uint32_t blocks, Stream stream) = 0;

  using EngineDevice::order;
  /// Makes what comes on `then` wait for what is on `first`; does not wait itself.
  virtual void order(Stream first, Stream then) = 0;
  /// Marks the newest work on `stream` as `owner`'s; drain() waits for it.
  virtual Mark note(Stream stream, const void* owner) = 0;
  /// Waits until all noted work of `owner` has ended, but not for other work, nor for graphs that a
  /// program launches again. From any thread.
  virtual void drain(const void* owner) noexcept = 0;

  /// Blocks that surely run side by side on the whole device.
  virtual std::uint32_t most_blocks() const = 0;

  /// How kernels of this device reach the memory that allocate() gives on another one of this
  /// process, from now on; its own too.
  enum class Reach {
    none,
    memory,
    whole_lines,  // and a warp's 128-byte stores stay whole on the way (LL128)
  };
  virtual Reach reach(const Identity& other) = 0;
  /// Whether kernels can address memory of such a device, which may be anybody's allocation.
  virtual bool can_address(const std::byte* memory) = 0;
  /// The allocation that `memory` lies in, which may be anybody's, or be gone. Also while a stream
  /// of this thread is captured. From any thread.
  virtual CudaAllocation allocation(const std::byte* memory) = 0;
  /// For other processes to map `memory`, where an allocation begins. Some memory cannot be shared:
  /// there are no kinds of handles then. Throws Error.
  virtual CudaExport share(const std::byte* memory, std::size_t bytes) = 0;
  /// Maps what another process shares, as this device's kernels address it. `fd`: what came with
  /// the handle. Also while a stream of this thread is captured. Throws Error.
  virtual Mapping map(const CudaMemoryHandle& handle, const FileDescriptor& fd) = 0;

  // For network cards that read and write the device's memory by themselves. As they are here, they
  // are those of a device whose memory no card reaches.
  /// Of whole pages of memory that allocate() gave: a dma-buf that begins where `memory` does.
  /// Throws Error(system) where it cannot be had.
  virtual FileDescriptor dma_buf(const std::byte* /*memory*/, std::size_t /*bytes*/) {
    throw Error(ErrorCode::system, "the device gives no dma-buf of its memory");
  }
  /// When kernels see what such cards have written.
  virtual RdmaOrder rdma_order() { return RdmaOrder::unknown; }
  /// RdmaOrder::with_flush: returns when all that they have written is there for kernels that hear
  /// of it from now on. From any thread. Throws Error(system).
  virtual void flush_rdma_writes() {}
};

}  // namespace tutti::device

// Memory of an engine. The pool counts it, so tests can compare its size with the expected one. It
// is freed with its owner. It comes from the device (device.h): from windows of the host
// (core/memory.h), where collectives are fastest, or from a GPU. Or it comes from ordinary memory
// of the host.
//
// A pool that reuses memory keeps freed blocks for later requests of the same size or less, because
// windows cost system calls and other ranks' attention. If no kept block fits, it gives a block
// back and makes another. So there are never more blocks than were in use at once. On a GPU a block
// is free once the stream current() has come to where it was freed: its next user waits for that
// event, on its own stream, and the host does not.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "device.h"

namespace tutti::parallel {

/// Of the device, where collectives are fastest; or ordinary memory of the host.
enum class MemoryKind : unsigned char { window, host };

struct MemoryUse {
  std::size_t bytes = 0;     // in use, as requested
  std::size_t peak = 0;      // the most of that at once
  std::size_t reserved = 0;  // with the blocks that are kept for later
};

class MemoryPool;

/// Owns a part of a pool, which has to outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() { reset(); }
  void reset();
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class MemoryPool;
  void swap(Buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(block_, other.block_);
  }
  MemoryPool* pool_ = nullptr;
  MemoryKind kind_ = MemoryKind::window;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, block_ = 0;
};

class MemoryPool {
 public:
  enum class Reuse : bool { no, yes };

  /// `device` outlives it, and its buffers.
  explicit MemoryPool(Reuse reuse = Reuse::no, Device& device = host_device())
      : reuse_(reuse), device_(device) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  /// Of any contents; for 0 bytes a buffer without data. Throws Error(system).
  Buffer allocate(std::size_t bytes, MemoryKind kind = MemoryKind::window);
  /// allocate(), filled with zeros.
  Buffer zeros(std::size_t bytes, MemoryKind kind = MemoryKind::window);
  Device& device() const { return device_; }
  const MemoryUse& use(MemoryKind kind) const { return of_[static_cast<int>(kind)].use; }
  /// The use of both kinds together.
  MemoryUse total() const;

 private:
  friend class Buffer;
  struct FreeBlock {
    std::byte* data;
    Device::Event free_after;
  };
  struct OfKind {
    MemoryUse use;
    std::multimap<std::size_t, FreeBlock> kept;  // by size
  };
  std::byte* obtain(std::size_t bytes, MemoryKind kind);
  void release(const FreeBlock& block, MemoryKind kind);
  void give_back(Buffer& buffer);

  const Reuse reuse_;
  Device& device_;
  OfKind of_[2];
  std::size_t peak_ = 0;
};

/// A buffer of zeros with several owners. It counts in `pool` until the last of them lets go.
std::shared_ptr<Buffer> shared_buffer(std::size_t bytes, std::shared_ptr<MemoryPool> pool);

}  // namespace tutti::parallel

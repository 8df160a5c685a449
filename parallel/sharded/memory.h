// Memory that is counted. Buffers come from windows (core/memory.h), where collectives are fastest,
// or from ordinary memory of the host.
//
// What is freed is kept for the next that needs as much or less, because windows cost system calls
// and other ranks' attention. A block that nothing fits is given back when another has to be made,
// so there are never more blocks than were in use at once.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

namespace tutti::parallel {

enum class Place : unsigned char { window, host };

struct PoolUse {
  std::size_t bytes = 0;     // in use: what was asked for
  std::size_t peak = 0;      // the most of that at once
  std::size_t reserved = 0;  // with what is kept for later
};

class Memory;

/// Owns a part of a Memory, which has to outlive it.
class PoolBuffer {
 public:
  PoolBuffer() = default;
  PoolBuffer(PoolBuffer&& other) noexcept { swap(other); }
  PoolBuffer& operator=(PoolBuffer&& other) noexcept {
    PoolBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~PoolBuffer() { reset(); }
  void reset();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  friend class Memory;
  void swap(PoolBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(place_, other.place_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(block_, other.block_);
  }
  Memory* memory_ = nullptr;
  Place place_ = Place::window;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, block_ = 0;
};

class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  /// Of any contents; for 0 bytes a buffer without data. Throws Error(system).
  PoolBuffer allocate(std::size_t bytes, Place place = Place::window);
  /// The same, of zeros.
  PoolBuffer zeros(std::size_t bytes, Place place = Place::window);
  const PoolUse& use(Place place) const { return of_[static_cast<int>(place)].use; }
  /// Of both places together.
  PoolUse total() const;

 private:
  friend class PoolBuffer;
  struct Pool {
    PoolUse use;
    std::multimap<std::size_t, std::byte*> kept;  // by size
  };
  void give_back(PoolBuffer& buffer);

  Pool of_[2];
  std::size_t peak_ = 0;
};

}  // namespace tutti::parallel

// The memory of a link to or from another host: private pages, taken when they are first touched.
// A device that reads or writes it by itself has it registered for as long as it lives.
#pragma once

#include <cstddef>
#include <memory>

namespace tutti {

class MemoryRegion;

class RingMemory {
 public:
  /// Zeros. Throws Error(system).
  explicit RingMemory(std::size_t bytes);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

  /// What a network knows it by, where that is needed; goes before the memory.
  std::shared_ptr<MemoryRegion> region;

 private:
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace tutti

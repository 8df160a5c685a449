// The memory of a link to or from another host: private pages, taken when they are first touched.
// A device that reads or writes it by itself has it registered for as long as it lives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

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
  /// Gives back these pages (whole_pages()), which are zeros from now on. Those that a device knows
  /// stay.
  void give_back(std::span<std::byte> pages) const noexcept;

  /// What a network knows it by, where that is needed; goes before the memory.
  std::shared_ptr<MemoryRegion> region;

 private:
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace tutti

// The memory that a benchmark runs on, and how much of it the process has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::perf {

/// Page-aligned memory, every page of it touched; a window (tutti::allocate), or from malloc.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool window);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  bool window_;
};

/// Resident memory of this process in bytes, now and at its highest; 0 where it cannot be read.
struct MemoryUse {
  std::int64_t now = 0;
  std::int64_t peak = 0;
};
MemoryUse memory_use();

}  // namespace tutti::perf

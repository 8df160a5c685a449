// The memory that a benchmark runs on, and how much of it the process has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::perf {

class Buffer {
 public:
  /// Page-aligned memory of the host, every page of it touched; a window (tutti::allocate), or from
  /// malloc.
  Buffer(std::size_t bytes, bool window);
  /// Takes over memory from elsewhere.
  Buffer(std::byte* data, std::function<void(std::byte*)> free);
  Buffer(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::function<void(std::byte*)> free_;
};

/// Resident memory of this process in bytes, now and at its highest; 0 if it cannot be read.
struct MemoryUse {
  std::int64_t now = 0;
  std::int64_t peak = 0;
};
MemoryUse memory_use();

}  // namespace tutti::perf

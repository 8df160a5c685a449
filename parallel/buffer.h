// Memory of an engine: from tutti::allocate(), so that collectives on it are fastest, freed with
// its owner, and counted, so that tests can compare what an engine holds with what it should.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "../core/memory.h"

namespace tutti::parallel {

/// Bytes that an engine holds, now and at the most.
struct MemoryUse {
  std::size_t bytes = 0, peak = 0;

  void add(std::size_t more) {
    bytes += more;
    peak = std::max(peak, bytes);
  }
  void remove(std::size_t less) { bytes -= less; }
};

class Buffer {
 public:
  Buffer() = default;
  /// Zeroed. `use` outlives it.
  Buffer(std::size_t bytes, MemoryUse& use)
      : data_(static_cast<std::byte*>(allocate(bytes))), bytes_(bytes), use_(&use) {
    use.add(bytes);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(use_, other.use_);
    return *this;
  }
  ~Buffer() {
    deallocate(data_);
    if (use_ != nullptr) use_->remove(bytes_);
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryUse* use_ = nullptr;
};

/// A buffer that several may keep. It counts in `use` until the last of them lets go.
inline std::shared_ptr<Buffer> shared_buffer(std::size_t bytes, std::shared_ptr<MemoryUse> use) {
  struct Counted {
    Counted(std::size_t b, std::shared_ptr<MemoryUse> u) : use(std::move(u)), buffer(b, *use) {}
    const std::shared_ptr<MemoryUse> use;  // outlives the buffer
    Buffer buffer;
  };
  const auto counted = std::make_shared<Counted>(bytes, std::move(use));
  return {counted, &counted->buffer};
}

}  // namespace tutti::parallel

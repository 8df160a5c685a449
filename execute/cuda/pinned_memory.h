// Memory of the host that kernels read and write under the address that it has here: a range of
// addresses. Only the parts that a caller asks for are pinned; the rest takes no memory.
#pragma once

#include <cstddef>
#include <vector>

#include "execute/cuda/device.h"

namespace tutti::device {

class PinnedMemory {
 public:
  /// Reserves `bytes`, which are zero. Throws Error(system).
  PinnedMemory(Device& device, std::size_t bytes);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  /// When no kernel uses it any more.
  ~PinnedMemory();

  /// Makes [begin, end) known to the device, rounded to pages. Parts are asked for in ascending
  /// order. Throws Error(system).
  void pin(std::size_t begin, std::size_t end);
  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::size_t bytes_;  // whole pages
  std::byte* data_ = nullptr;
  std::vector<std::byte*> pinned_;
  std::size_t end_ = 0;  // of what is pinned
};

}  // namespace tutti::device

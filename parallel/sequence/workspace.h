// Memory of one call, in one piece: a struct of buffers takes its parts from a workspace. Without
// memory, the workspace only counts them.
#pragma once

#include <cstddef>

#include "parallel/memory_pool.h"

namespace tutti::parallel::sequence {

class Workspace {
 public:
  explicit Workspace(std::byte* base = nullptr) : base_(base) {}

  /// At a multiple of 64 bytes.
  std::byte* take(std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    std::byte* const at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + kLine - 1) / kLine * kLine;
    return at;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// The bytes of a struct that is made of (argument, workspace).
template <class Buffers, class Argument>
std::size_t bytes_of(const Argument& argument) {
  Workspace count;
  Buffers(argument, count);
  return count.used();
}

/// Such a struct, with its memory.
template <class Buffers>
struct Allocated {
  template <class Argument>
  Allocated(const Argument& argument, MemoryPool& pool)
      : memory(pool.allocate(bytes_of<Buffers>(argument))),
        workspace(memory.data()),
        buffers(argument, workspace) {}
  const Buffers* operator->() const { return &buffers; }

  Buffer memory;
  Workspace workspace;
  Buffers buffers;
};

}  // namespace tutti::parallel::sequence

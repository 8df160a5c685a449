// The memory of a rank for a layout, in one allocation that other ranks of the host can map.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layout.h"

namespace tutti::parallel::reshard {

/// Moves, and is not copied. Throws Error(system) where there is not so much memory.
class Buffers {
 public:
  Buffers() = default;
  /// All buffers that rank `rank` has, zeroed, each at a multiple of 4096 bytes.
  Buffers(const Layout& layout, int rank);
  Buffers(Buffers&& other) noexcept;
  Buffers& operator=(Buffers&& other) noexcept;
  ~Buffers();

  /// By buffer of the layout; null: the rank does not have it.
  std::span<void* const> pointers() const { return pointers_; }
  /// The pointers() as sources.
  std::span<const void* const> sources() const { return sources_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_ = nullptr;  // of allocate()
  std::size_t bytes_ = 0;
  std::vector<void*> pointers_;
  std::vector<const void*> sources_;
};

}  // namespace tutti::parallel::reshard

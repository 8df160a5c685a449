#include "parallel/reshard/buffers.h"

#include <tutti/core/memory.h>

#include <utility>

namespace tutti::parallel::reshard {

Buffers::Buffers(const Layout& layout, int rank) {
  constexpr std::uint64_t kAlignment = 4096;
  const std::vector<std::uint64_t> sizes = layout.bytes_of(rank);
  std::vector<std::uint64_t> offsets;
  for (const std::uint64_t size : sizes) {
    offsets.push_back(bytes_);
    bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  memory_ = static_cast<std::byte*>(allocate(bytes_));
  for (std::size_t b = 0; b < sizes.size(); ++b) {
    pointers_.push_back(sizes[b] == 0 ? nullptr : memory_ + offsets[b]);
    sources_.push_back(pointers_.back());
  }
}

Buffers::Buffers(Buffers&& other) noexcept { *this = std::move(other); }

Buffers& Buffers::operator=(Buffers&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(pointers_, other.pointers_);
  std::swap(sources_, other.sources_);
  return *this;
}

Buffers::~Buffers() { deallocate(memory_); }

}  // namespace tutti::parallel::reshard

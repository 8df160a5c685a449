#include "transport/host/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/host_memory.h"

namespace tutti {
std::size_t to_page(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return bytes > SIZE_MAX - page ? SIZE_MAX : (bytes + page - 1) / page * page;
}

std::span<std::byte> pages_around(std::span<std::byte> memory) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(memory.data()) % page_bytes();
  return {memory.data() - before, to_page(before + memory.size())};
}

std::span<std::byte> whole_pages(std::span<std::byte> memory) {
  const std::size_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t before = (page - address % page) % page;
  if (memory.size() < before + page) return {};
  return memory.subspan(before, (memory.size() - before) / page * page);
}

std::size_t taken_bytes(std::span<std::byte> pages) {
  const std::size_t page = page_bytes();
  std::array<unsigned char, 1024> taken{};
  std::size_t count = 0;
  while (!pages.empty()) {
    const auto piece = pages.first(std::min(pages.size(), taken.size() * page));
    if (mincore(piece.data(), piece.size(), taken.data()) != 0) return 0;
    const auto end = taken.begin() + static_cast<std::ptrdiff_t>(piece.size() / page);
    count += static_cast<std::size_t>(
        std::count_if(taken.begin(), end, [](unsigned char t) { return (t & 1) != 0; }));
    pages = pages.subspan(piece.size());
  }
  return count * page;
}

}  // namespace tutti

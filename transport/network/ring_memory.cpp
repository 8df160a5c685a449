#include "transport/network/ring_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/error.h"
#include "transport/network/endpoint.h"

namespace tutti {

RingMemory::RingMemory(std::size_t bytes)
    : data_(static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
      bytes_(bytes) {
  if (data_ == MAP_FAILED) {
    throw_system_error(fmt::format("no memory for a link of {} bytes to another host", bytes));
  }
}

void RingMemory::give_back(std::span<std::byte> pages) const noexcept {
  if (!region && !pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

RingMemory::~RingMemory() {
  region.reset();
  munmap(data_, bytes_);
}

}  // namespace tutti

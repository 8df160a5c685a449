#include "execute/cuda/pinned_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/error.h"
#include "core/host_memory.h"

namespace tutti::device {
namespace {

std::size_t round_up(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

std::size_t round_down(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return bytes / page * page;
}

}  // namespace

PinnedMemory::PinnedMemory(Device& device, std::size_t bytes)
    : device_(device), bytes_(round_up(bytes)) {
  // Shared: of private memory a forked child would get the pages, and this process copies that the
  // device does not know.
  void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw_system_error("cannot reserve " + std::to_string(bytes_) + " bytes for slots of the host");
  }
  data_ = static_cast<std::byte*>(at);
}

PinnedMemory::~PinnedMemory() {
  for (std::byte* part : pinned_) device_.unpin(part);
  munmap(data_, bytes_);
}

void PinnedMemory::pin(std::size_t begin, std::size_t end) {
  begin = std::max(round_down(begin), end_);
  end = std::min(round_up(end), bytes_);
  if (begin >= end) return;
  device_.pin(data_ + begin, end - begin);
  pinned_.push_back(data_ + begin);
  end_ = end;
}

}  // namespace tutti::device

// Memory; see buffer.h.
#include "bench/perf/buffer.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <string>

#include "core/memory.h"

namespace tutti::perf {

namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

Buffer::Buffer(std::size_t bytes, bool window) : window_(window) {
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  data_ = static_cast<std::byte*>(window ? allocate(rounded) : std::aligned_alloc(kPage, rounded));
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_, 0, rounded);  // page faults belong before the clock starts
}

Buffer::~Buffer() {
  if (window_) {
    deallocate(data_);
  } else {
    std::free(data_);
  }
}

MemoryUse memory_use() {
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kibibytes = 0;
    if (!(words >> key >> kibibytes)) continue;
    if (key == "VmRSS:") use.now = kibibytes * 1024;
    if (key == "VmHWM:") use.peak = kibibytes * 1024;
  }
  return use;
}

}  // namespace tutti::perf

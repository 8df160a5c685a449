// Memory; see buffer.h.
#include "bench/perf/buffer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/host_memory.h"
#include "core/memory.h"

namespace tutti::perf {

namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

Buffer::Buffer(std::size_t bytes, bool window) {
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  data_ = static_cast<std::byte*>(window ? allocate(rounded) : std::aligned_alloc(kPage, rounded));
  if (data_ == nullptr) {
    throw_system_error(
        fmt::format("{} from malloc() cannot be had", memory_text(static_cast<double>(rounded))));
  }
  if (window) {
    free_ = [](std::byte* data) { deallocate(data); };
  } else {
    free_ = [](std::byte* data) { std::free(data); };
  }
  std::memset(data_, 0, rounded);  // page faults belong before the clock starts
}

Buffer::Buffer(std::byte* data, std::function<void(std::byte*)> free)
    : data_(data), free_(std::move(free)) {}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), free_(std::move(other.free_)) {}

Buffer::~Buffer() {
  if (data_ != nullptr) free_(data_);
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

#include "parallel/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "core/error.h"
#include "core/host_memory.h"
#include "core/memory.h"

namespace tutti::parallel {
namespace {

constexpr std::align_val_t kLine{64};

std::byte* obtain(std::size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::window) return static_cast<std::byte*>(tutti::allocate(bytes));
  void* const memory = ::operator new(bytes, kLine, std::nothrow);
  if (memory != nullptr) return static_cast<std::byte*>(memory);
  throw Error(ErrorCode::system, fmt::format("{} of the host's memory cannot be had",
                                             memory_text(static_cast<double>(bytes))));
}

void release(std::byte* data, MemoryKind kind) {
  if (kind == MemoryKind::window) return tutti::deallocate(data);
  ::operator delete(data, kLine);
}

}  // namespace

void Buffer::reset() {
  if (pool_ != nullptr) pool_->give_back(*this);
  pool_ = nullptr;
  data_ = nullptr;
  bytes_ = block_ = 0;
}

MemoryPool::~MemoryPool() {
  for (const MemoryKind kind : {MemoryKind::window, MemoryKind::host}) {
    for (const auto& [bytes, data] : of_[static_cast<int>(kind)].kept) release(data, kind);
  }
}

Buffer MemoryPool::allocate(std::size_t bytes, MemoryKind kind) {
  OfKind& pool = of_[static_cast<int>(kind)];
  Buffer buffer;
  if (bytes > 0) {
    const auto kept = pool.kept.lower_bound(bytes);
    if (kept != pool.kept.end()) {
      buffer.block_ = kept->first;
      buffer.data_ = kept->second;
      pool.kept.erase(kept);
    } else {
      if (!pool.kept.empty()) {  // all are too small: the largest makes room
        const auto largest = std::prev(pool.kept.end());
        release(largest->second, kind);
        pool.use.reserved -= largest->first;
        pool.kept.erase(largest);
      }
      buffer.data_ = obtain(bytes, kind);
      buffer.block_ = bytes;
      pool.use.reserved += bytes;
    }
  }
  buffer.pool_ = this;
  buffer.kind_ = kind;
  buffer.bytes_ = bytes;
  pool.use.bytes += bytes;
  pool.use.peak = std::max(pool.use.peak, pool.use.bytes);
  peak_ = std::max(peak_, of_[0].use.bytes + of_[1].use.bytes);
  return buffer;
}

Buffer MemoryPool::zeros(std::size_t bytes, MemoryKind kind) {
  Buffer buffer = allocate(bytes, kind);
  // A window begins as zeros.
  const bool is_new = reuse_ == Reuse::no && kind == MemoryKind::window;
  if (bytes > 0 && !is_new) std::memset(buffer.data(), 0, bytes);
  return buffer;
}

MemoryUse MemoryPool::total() const {
  return {.bytes = of_[0].use.bytes + of_[1].use.bytes,
          .peak = peak_,
          .reserved = of_[0].use.reserved + of_[1].use.reserved};
}

void MemoryPool::give_back(Buffer& buffer) {
  OfKind& pool = of_[static_cast<int>(buffer.kind_)];
  pool.use.bytes -= buffer.bytes_;
  if (buffer.data_ == nullptr) return;
  if (reuse_ == Reuse::yes) {
    try {
      pool.kept.emplace(buffer.block_, buffer.data_);
      return;
    } catch (const std::bad_alloc&) {  // then it is not kept
    }
  }
  release(buffer.data_, buffer.kind_);
  pool.use.reserved -= buffer.block_;
}

std::shared_ptr<Buffer> shared_buffer(std::size_t bytes, std::shared_ptr<MemoryPool> pool) {
  struct Counted {
    Counted(std::size_t b, std::shared_ptr<MemoryPool> p)
        : pool(std::move(p)), buffer(pool->zeros(b)) {}
    const std::shared_ptr<MemoryPool> pool;  // outlives the buffer
    Buffer buffer;
  };
  const auto counted = std::make_shared<Counted>(bytes, std::move(pool));
  return {counted, &counted->buffer};
}

}  // namespace tutti::parallel

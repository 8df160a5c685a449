#include "parallel/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

#include "core/error.h"
#include "core/host_memory.h"

namespace tutti::parallel {
namespace {

constexpr std::align_val_t kLine{64};

}  // namespace

void Buffer::reset() {
  if (pool_ != nullptr) pool_->give_back(*this);
  pool_ = nullptr;
  data_ = nullptr;
  bytes_ = block_ = 0;
}

std::byte* MemoryPool::obtain(std::size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::window) return device_.allocate(bytes);
  void* const memory = ::operator new(bytes, kLine, std::nothrow);
  if (memory != nullptr) return static_cast<std::byte*>(memory);
  throw Error(ErrorCode::system, fmt::format("{} of the host's memory cannot be had",
                                             memory_text(static_cast<double>(bytes))));
}

void MemoryPool::release(const FreeBlock& block, MemoryKind kind) {
  if (kind == MemoryKind::window) return device_.release(block.data, block.free_after);
  ::operator delete(block.data, kLine);
}

MemoryPool::~MemoryPool() {
  for (const MemoryKind kind : {MemoryKind::window, MemoryKind::host}) {
    for (const auto& [bytes, kept] : of_[static_cast<int>(kind)].kept) release(kept, kind);
  }
}

Buffer MemoryPool::allocate(std::size_t bytes, MemoryKind kind) {
  OfKind& pool = of_[static_cast<int>(kind)];
  Buffer buffer;
  if (bytes > 0) {
    const auto kept = pool.kept.lower_bound(bytes);
    if (kept != pool.kept.end()) {
      buffer.block_ = kept->first;
      buffer.data_ = kept->second.data;
      if (kind == MemoryKind::window) device_.order(kept->second.free_after, device_.current());
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
  if (is_new || bytes == 0) return buffer;
  if (kind == MemoryKind::window) {
    device_.zero(buffer.data(), bytes);
  } else {
    std::memset(buffer.data(), 0, bytes);
  }
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
  FreeBlock block{buffer.data_, nullptr};
  try {
    if (buffer.kind_ == MemoryKind::window) block.free_after = device_.record(device_.current());
    if (reuse_ == Reuse::yes) {
      pool.kept.emplace(buffer.block_, block);
      return;
    }
  } catch (const std::exception&) {  // then it is not kept
  }
  release(block, buffer.kind_);
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

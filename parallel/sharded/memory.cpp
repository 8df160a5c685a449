#include "parallel/sharded/memory.h"

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

std::byte* obtain(std::size_t bytes, Place place) {
  if (place == Place::window) return static_cast<std::byte*>(tutti::allocate(bytes));
  void* const memory = ::operator new(bytes, kLine, std::nothrow);
  if (memory != nullptr) return static_cast<std::byte*>(memory);
  throw Error(ErrorCode::system, fmt::format("{} of the host's memory cannot be had",
                                             memory_text(static_cast<double>(bytes))));
}

void release(std::byte* data, Place place) {
  if (place == Place::window) return tutti::deallocate(data);
  ::operator delete(data, kLine);
}

}  // namespace

void PoolBuffer::reset() {
  if (memory_ != nullptr) memory_->give_back(*this);
  memory_ = nullptr;
  data_ = nullptr;
  bytes_ = block_ = 0;
}

Memory::~Memory() {
  for (const Place place : {Place::window, Place::host}) {
    for (const auto& [bytes, data] : of_[static_cast<int>(place)].kept) release(data, place);
  }
}

PoolBuffer Memory::allocate(std::size_t bytes, Place place) {
  Pool& pool = of_[static_cast<int>(place)];
  PoolBuffer buffer;
  if (bytes > 0) {
    const auto kept = pool.kept.lower_bound(bytes);
    if (kept != pool.kept.end()) {
      buffer.block_ = kept->first;
      buffer.data_ = kept->second;
      pool.kept.erase(kept);
    } else {
      if (!pool.kept.empty()) {  // all are too small: the largest makes room
        const auto largest = std::prev(pool.kept.end());
        release(largest->second, place);
        pool.use.reserved -= largest->first;
        pool.kept.erase(largest);
      }
      buffer.data_ = obtain(bytes, place);
      buffer.block_ = bytes;
      pool.use.reserved += bytes;
    }
  }
  buffer.memory_ = this;
  buffer.place_ = place;
  buffer.bytes_ = bytes;
  pool.use.bytes += bytes;
  pool.use.peak = std::max(pool.use.peak, pool.use.bytes);
  peak_ = std::max(peak_, of_[0].use.bytes + of_[1].use.bytes);
  return buffer;
}

PoolBuffer Memory::zeros(std::size_t bytes, Place place) {
  PoolBuffer buffer = allocate(bytes, place);
  if (bytes > 0) std::memset(buffer.data(), 0, bytes);
  return buffer;
}

PoolUse Memory::total() const {
  return {.bytes = of_[0].use.bytes + of_[1].use.bytes,
          .peak = peak_,
          .reserved = of_[0].use.reserved + of_[1].use.reserved};
}

void Memory::give_back(PoolBuffer& buffer) {
  Pool& pool = of_[static_cast<int>(buffer.place_)];
  pool.use.bytes -= buffer.bytes_;
  if (buffer.data_ == nullptr) return;
  try {
    pool.kept.emplace(buffer.block_, buffer.data_);
  } catch (const std::bad_alloc&) {  // then it is not kept
    release(buffer.data_, buffer.place_);
    pool.use.reserved -= buffer.block_;
  }
}

}  // namespace tutti::parallel

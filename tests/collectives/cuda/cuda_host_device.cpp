#include "tests/collectives/cuda/cuda_host_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if defined(__SANITIZE_THREAD__)
// One fiber of a thread is at work at a time, which ThreadSanitizer does not know; the stores
// themselves it sees.
#define TUTTI_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define TUTTI_UNSEEN
#endif

namespace tutti::test {

HostBlock::Shared::Shared(const BlockOfThreads& s, std::uint64_t seed)
    : shape(s), fibers(s.threads, seed) {
  if (s.warp % 8 != 0 || s.warp > 32 || s.threads % s.warp != 0) std::abort();
}

void HostBlock::pause() {
  if (shared_.fibers.random() % 4 == 0) carry_out_all();
  shared_.fibers.yield();
}

void HostBlock::store_relaxed(std::uint64_t* p, std::uint64_t value) { keep_back({p, 1, {value}}); }

void HostBlock::store_pair(std::uint64_t* p, device::Pair value) {
  device::check_aligned(p, sizeof value);
  keep_back({p, 2, {value.first, value.second}});
}

TUTTI_UNSEEN device::Pair HostBlock::load_line(const std::uint64_t* p) {
  const std::uint32_t lane = thread_ % warp();
  warp_.line[lane] = const_cast<std::uint64_t*>(p);
  any(false);
  if (lane % 8 == 0) {
    device::check_aligned(p, device::kLine);
    // The flag first, so that what is read after it is no older. acquire: as below.
    const std::uint64_t flag = device::load_acquire(p + 15);
    for (std::uint32_t i = 0; i < 8; ++i) {
      const bool flagged = i == 7;
      warp_.part[lane + i] = {device::load_relaxed(p + 2 * i),
                              flagged ? flag : device::load_relaxed(p + 2 * i + 1)};
    }
  }
  any(false);
  return warp_.part[lane];
}

TUTTI_UNSEEN std::uint32_t HostBlock::of_first(std::uint32_t value) {
  if (thread_ % warp() == 0) warp_.part[0].first = value;
  any(false);
  value = static_cast<std::uint32_t>(warp_.part[0].first);
  any(false);
  return value;
}

TUTTI_UNSEEN void HostBlock::store_line(std::uint64_t* p, device::Pair value) {
  const std::uint32_t lane = thread_ % warp();
  warp_.line[lane] = p;
  warp_.part[lane] = value;
  any(false);
  if (lane % 8 == 0 && p != nullptr) {
    device::check_aligned(p, device::kLine);
    Late line;
    line.words = p;
    line.count = 16;
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (warp_.line[lane + i] != p + 2 * i) std::abort();  // a line with a hole
      line.value[2 * i] = warp_.part[lane + i].first;
      line.value[2 * i + 1] = warp_.part[lane + i].second;
    }
    keep_back(line);
  }
  any(false);
}

TUTTI_UNSEEN void HostBlock::keep_back(const Late& store) {
  if (shared_.kept == kMostLate) carry_out(shared_.fibers.random() % shared_.kept);
  put(shared_.late[shared_.kept++], store);
  while (shared_.kept > 0 && shared_.fibers.random() % 4 == 0) {
    carry_out(shared_.fibers.random() % shared_.kept);
  }
}

TUTTI_UNSEEN void HostBlock::carry_out_all() {
  while (shared_.kept > 0) carry_out(shared_.fibers.random() % shared_.kept);
}

TUTTI_UNSEEN void HostBlock::carry_out(std::size_t which) {
  // Of those to one address the oldest.
  std::size_t first = 0;
  while (shared_.late[first].words != shared_.late[which].words) ++first;
  Late store;
  put(store, shared_.late[first]);
  --shared_.kept;
  for (std::size_t i = first; i < shared_.kept; ++i) put(shared_.late[i], shared_.late[i + 1]);
  const std::uint32_t last = store.count - 1;
  for (std::uint32_t i = 0; i < last; ++i) device::store_relaxed(store.words + i, store.value[i]);
  if (store.count == 16) {
    // A line's flag last, and with release: the host knows no store of 128 bytes.
    device::store_release(store.words + last, store.value[last]);
  } else {
    device::store_relaxed(store.words + last, store.value[last]);
  }
}

/// An assignment, which ThreadSanitizer would see as memcpy().
TUTTI_UNSEEN void HostBlock::put(Late& to, const Late& from) {
  to.words = from.words;
  to.count = from.count;
  for (std::uint32_t i = 0; i < from.count; ++i) to.value[i] = from.value[i];
}

HostDevice::~HostDevice() {
  if (allocations_.empty()) return;
  std::fprintf(stderr, "%zu allocations of a device were never freed\n", allocations_.size());
  std::abort();
}

std::byte* HostDevice::allocate(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t padded = (bytes + 255) / 256 * 256;
  const std::size_t inside = (padded + page - 1) / page * page;
  void* const p = mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const std::span all{static_cast<std::byte*>(p), inside + 2 * page};
  if (mprotect(all.data() + page, inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  std::byte* const memory = all.data() + page + inside - padded;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(all.data() + page, inside - padded);
  ASAN_POISON_MEMORY_REGION(memory + bytes, padded - bytes);
#endif
  const std::lock_guard lock(allocations_mutex_);
  allocations_[memory] = all;
  return memory;
}

void HostDevice::deallocate(std::byte* p) noexcept {
  if (p == nullptr) return;
  std::span<std::byte> all;
  {
    const std::lock_guard lock(allocations_mutex_);
    const auto found = allocations_.find(p);
    if (found == allocations_.end()) std::abort();  // it is none, or was freed before
    all = found->second;
    allocations_.erase(found);
  }
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(all.data(), all.size());
#endif
  munmap(all.data(), all.size());
}

void HostDevice::run(HostBlock& block, device::BlockShared& shared, const device::Launch& launch,
                     DataType type, std::uint32_t index) {
  const auto as = [&]<DataType t>() {
    using E = device::ElementOf<t>;
    using enum device::KernelKind;
    switch (launch.kernel()) {
      case words:
        return device::run_block<E, words>(block, shared, launch, index);
      case windows:
        return device::run_block<E, windows>(block, shared, launch, index);
      case canonical:
        if constexpr (std::is_floating_point_v<typename E::Wide>) {
          return device::run_block<device::InCanonicalOrder<E>, canonical>(block, shared, launch,
                                                                           index);
        }
        [[fallthrough]];
      case any:
        return device::run_block<E, any>(block, shared, launch, index);
    }
  };
  using enum DataType;
  switch (type) {
    case int8:
      return as.operator()<int8>();
    case uint8:
      return as.operator()<uint8>();
    case int32:
      return as.operator()<int32>();
    case uint32:
      return as.operator()<uint32>();
    case int64:
      return as.operator()<int64>();
    case uint64:
      return as.operator()<uint64>();
    case float16:
      return as.operator()<float16>();
    case float32:
      return as.operator()<float32>();
    case float64:
      return as.operator()<float64>();
    case bfloat16:
      return as.operator()<bfloat16>();
    case float8_e4m3:
      return as.operator()<float8_e4m3>();
    case float8_e5m2:
      return as.operator()<float8_e5m2>();
  }
}

}  // namespace tutti::test

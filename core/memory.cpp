#include "core/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "core/window_memory.h"

namespace tutti {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, WindowMemory> by_base;
  std::vector<std::uint32_t> freed;
  std::uint32_t next_id = 1;
  // Counts changes; what a thread remembers is valid while this has not moved.
  std::atomic<std::uint64_t> changes{1};
};

Registry& registry() {
  static Registry* r = new Registry;  // never destroyed: allocators may run during exit
  return *r;
}

/// The windows that a thread has asked for last: a call has an input and an output.
struct Remembered {
  std::uint64_t changes = 0;
  std::array<WindowMemory, 4> windows;
  std::size_t oldest = 0;
};

}  // namespace

void* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) - page) throw std::bad_alloc();
  const std::size_t rounded = (bytes + page - 1) / page * page;
  const int fd = memfd_create("tutti-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw std::bad_alloc();
  void* base = MAP_FAILED;
  // Sealed, so that nobody who maps it can be made to fault.
  if (ftruncate(fd, static_cast<off_t>(rounded)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    base = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    close(fd);
    throw std::bad_alloc();
  }
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  WindowMemory w{r.next_id++, static_cast<std::byte*>(base), rounded, fd};
  r.by_base.emplace(w.base, w);
  r.changes.fetch_add(1, std::memory_order_release);
  return base;
}

void deallocate(void* pointer) noexcept {
  if (pointer == nullptr) return;
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.by_base.find(static_cast<std::byte*>(pointer));
  if (it == r.by_base.end()) return;
  munmap(it->second.base, it->second.bytes);
  close(it->second.fd);
  r.freed.push_back(it->second.id);
  r.by_base.erase(it);
  r.changes.fetch_add(1, std::memory_order_release);
}

WindowMemory find_window(const void* pointer, std::size_t bytes) {
  thread_local Remembered known;
  Registry& r = registry();
  const auto* p = static_cast<const std::byte*>(pointer);
  const auto inside = [&](const WindowMemory& w) {
    return p >= w.base && bytes <= w.bytes && p <= w.base + (w.bytes - bytes);
  };
  if (known.changes == r.changes.load(std::memory_order_acquire)) {
    for (const WindowMemory& w : known.windows) {
      if (w.id != 0 && inside(w)) return w;
    }
  }
  const std::lock_guard lock(r.mutex);
  auto it = r.by_base.upper_bound(p);
  if (it == r.by_base.begin()) return {};
  --it;
  if (!inside(it->second)) return {};
  const std::uint64_t changes = r.changes.load(std::memory_order_relaxed);
  if (known.changes != changes) known = {changes, {}, 0};
  known.windows[known.oldest] = it->second;
  known.oldest = (known.oldest + 1) % known.windows.size();
  return it->second;
}

std::vector<std::uint32_t> freed_windows_since(std::uint64_t& generation) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::uint32_t> ids(r.freed.begin() + static_cast<std::ptrdiff_t>(generation),
                                 r.freed.end());
  generation = r.freed.size();
  return ids;
}

}  // namespace tutti

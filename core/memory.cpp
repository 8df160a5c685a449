#include "core/memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/fork.h"
#include "core/host_memory.h"
#include "core/window_heap.h"
#include "core/window_memory.h"

namespace tutti {
namespace {

struct Entry : WindowMemory {
  std::uint32_t forks = 0;  // forks_so_far() when it was made
  bool registered = false;  // it was there before
};

struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, Entry> by_base;
  std::map<const void*, const std::byte*> registered;  // its base, by what the user registered
  std::uint32_t next_id = 1;
  std::size_t bytes = 0;  // of all of them
  // Counts changes; what a thread remembers is valid while this has not moved.
  std::atomic<std::uint64_t> changes{1};
  std::mutex observers_mutex;  // never taken while the other one is held
  std::vector<WindowObserver*> observers;
};

Registry& registry() {
  static auto* const r = new Registry;  // never destroyed: allocators may run during exit
  [[maybe_unused]] static const bool held = [] {
    hold_across_fork([] { r->mutex.lock(); }, [] { r->mutex.unlock(); });
    hold_across_fork([] { r->observers_mutex.lock(); }, [] { r->observers_mutex.unlock(); });
    return true;
  }();
  return *r;
}

/// The windows that a thread has asked for last: a call has an input and an output.
struct Remembered {
  std::uint64_t changes = 0;
  std::array<WindowMemory, 4> windows;
  std::size_t oldest = 0;
};

/// `error_number`: why.
[[noreturn]] void refuse_window(std::size_t bytes, int error_number) {
  throw_system_error(fmt::format("{} of window memory cannot be had (limits on files, and on "
                                 "memory, apply to it: `ulimit -a`; docs/memory.md)",
                                 memory_text(static_cast<double>(bytes))),
                     error_number);
}

/// The system gives any size, and ends processes when the pages that were written to are too many.
void refuse_more_than_there_is(std::size_t bytes, std::size_t before) {
  static const std::uint64_t total = host_memory().total;
  if (bytes <= total && before <= total - bytes) return;
  const auto text = [](std::uint64_t n) { return memory_text(static_cast<double>(n)); };
  throw Error(ErrorCode::system,
              fmt::format("{} of window memory cannot be had: there are {} of memory for this "
                          "process, with swap, and its windows have {} of it already; ask for less "
                          "(docs/memory.md)",
                          text(bytes), text(total), text(before)));
}

/// New memory, of whole pages; not in the registry yet.
Entry make(std::size_t rounded) {
  check_file_limit(rounded);
  const int fd = above_standard(memfd_create("tutti-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) refuse_window(rounded, errno);
  void* base = MAP_FAILED;
  // Sealed, so that no process that maps it can be made to fault.
  if (ftruncate(fd, static_cast<off_t>(rounded)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    base = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    const int why = errno;
    close(fd);
    refuse_window(rounded, why);
  }
  return {{0, static_cast<std::byte*>(base), rounded, fd, false}, forks_so_far(), false};
}

// With the mutex held:
const Entry& add(Registry& r, Entry w) {
  w.id = r.next_id++;
  const Entry& added = r.by_base.insert_or_assign(w.base, w).first->second;
  if (!w.heap) r.bytes += w.bytes;
  r.changes.fetch_add(1, std::memory_order_release);
  return added;
}
void remove(Registry& r, const Entry& w) {
  r.by_base.erase(w.base);
  if (!w.heap) r.bytes -= w.bytes;
  r.changes.fetch_add(1, std::memory_order_release);
}

/// That a window is in the registry no more.
void tell_observers(const Entry& w) {
  Registry& r = registry();
  const std::lock_guard lock(r.observers_mutex);
  for (WindowObserver* o : r.observers) o->window_freed(w.id);
}

/// Ends a window that is in the registry no more, nor mapped here. Its pages go at once: other
/// ranks have it mapped until they hear that it is gone, and they may be slow to hear. (Not where a
/// child of fork() may have it too: the child's data there must stay.)
void release(const Entry& w, bool keep_pages = false) {
  tell_observers(w);
  if (!keep_pages && w.forks == forks_so_far()) {
    fallocate(w.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(w.bytes));
  }
  close(w.fd);
}

/// Whether all of [begin, end) is private, anonymous, readable and writable, and no stack.
bool is_own(std::uintptr_t begin, std::uintptr_t end) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; begin < end && std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    unsigned long inode = 0;
    char access[5] = {};
    char name[16] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu %15s", &from, &to,
                    access, &inode, name) < 4) {
      return false;
    }
    if (to <= begin) continue;
    const bool own = std::string_view(access) == "rw-p" && inode == 0;
    if (from > begin || !own || std::string_view(name).starts_with("[stack")) return false;
    begin = to;
  }
  return begin >= end;
}

/// Whether some of [begin, end) is this thread's stack. The kernel names the first thread's alone;
/// the stacks of other threads look like any memory.
bool is_on_own_stack(std::uintptr_t begin, std::uintptr_t end) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  const auto stack = reinterpret_cast<std::uintptr_t>(lowest);
  return begin < stack + bytes && stack < end;
}

/// From memory into memfd `fd`, or out of it. The kernel copies: a sanitizer would object to what
/// the user's memory may contain.
bool copy(long system_call, int fd, std::byte* memory, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes;) {
    const long moved = syscall(system_call, fd, memory + at, bytes - at, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    at += static_cast<std::size_t>(moved);
  }
  return true;
}

/// Moves the mapping `with` to `base`, in place of the one there.
bool replace(std::byte* base, void* with, std::size_t bytes) {
  return mremap(with, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base) != MAP_FAILED;
}

[[noreturn]] void refuse(const void* pointer, std::size_t bytes, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("register_memory({}, {}): {}", pointer, bytes, why));
}

}  // namespace

// --- The program's heap -------------------------------------------------------------------------

namespace {

constinit std::atomic<const WindowHeap*> the_heap{nullptr};  // where one is preloaded
constinit std::atomic<bool> heap_closed{false};
constinit std::atomic<int> heap_holds{0};
constinit std::atomic<bool> heap_pinned{false};

void close_heap(bool closed) {
  // seq_cst, with HeapHold::take(): either the fork sees the hold, or its thread sees this.
  heap_closed.store(closed);
  registry().changes.fetch_add(1);
}

void retire_from_heap(std::byte* base) {
  Registry& r = registry();
  Entry w;
  {
    const std::lock_guard lock(r.mutex);
    const auto it = r.by_base.find(base);
    if (it == r.by_base.end() || !it->second.heap) return;
    w = it->second;
    remove(r, w);
  }
  tell_observers(w);
}

constexpr HeapUser kHeapUser{close_heap, [] { return heap_holds.load() > 0; }, retire_from_heap,
                             [] { return heap_pinned.load(std::memory_order_relaxed); }};

[[maybe_unused]] const bool heap_found = [] {
  using Function = const WindowHeap* (*)();
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, kWindowHeapSymbol));
  if (function == nullptr) return false;
  const WindowHeap* const heap = function();
  heap->add_user(&kHeapUser);
  the_heap.store(heap);
  return true;
}();

/// The segment becomes a window when a call first asks for it. With the mutex held.
const Entry* adopt(Registry& r, const void* pointer, std::size_t bytes) {
  const WindowHeap* const heap = the_heap.load(std::memory_order_relaxed);
  HeapSegment segment{};
  if (heap == nullptr || heap_closed.load() || !heap->find(pointer, bytes, &segment)) {
    return nullptr;
  }
  return &add(r, {{0, segment.base, segment.bytes, segment.fd, true}, 0, false});
}

}  // namespace

void HeapHold::take() noexcept {
  if (held_ || the_heap.load(std::memory_order_relaxed) == nullptr) return;
  heap_holds.fetch_add(1);
  held_ = true;
}

void HeapHold::let_go() noexcept {
  heap_holds.fetch_sub(1);
  held_ = false;
}

void note_pinned_heap() noexcept { heap_pinned.store(true, std::memory_order_relaxed); }

// --- Windows of the user's ----------------------------------------------------------------------

void* allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t page = page_bytes();
  Registry& r = registry();
  std::size_t before = 0;
  {
    const std::lock_guard lock(r.mutex);
    before = r.bytes;
  }
  refuse_more_than_there_is(bytes, before);
  const Entry w = make((bytes + page - 1) / page * page);
  const std::lock_guard lock(r.mutex);
  try {
    add(r, w);
  } catch (const std::bad_alloc&) {
    munmap(w.base, w.bytes);
    close(w.fd);
    refuse_window(w.bytes, ENOMEM);
  }
  return w.base;
}

std::span<std::byte> register_memory(void* pointer, std::size_t bytes) {
  const std::size_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (pointer == nullptr || bytes == 0 || bytes > PTRDIFF_MAX - page ||
      address > UINTPTR_MAX - bytes - page) {
    refuse(pointer, bytes, "there is no such memory");
  }
  // Whole pages alone: what else lies on the others is not the user's to give, malloc()'s own data
  // among it.
  const std::uintptr_t begin = (address + page - 1) / page * page;
  const std::uintptr_t end = (address + bytes) / page * page;
  if (begin >= end) {
    refuse(pointer, bytes,
           fmt::format("there is no whole page of {} bytes in it; only whole pages can become a "
                       "window",
                       page));
  }
  auto* const base = reinterpret_cast<std::byte*>(begin);               // NOLINT: its first page
  if (find_window(base, end - begin).heap) return {base, end - begin};  // a window as it is
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto after = r.by_base.lower_bound(base + (end - begin));
  if (after != r.by_base.begin()) {
    const WindowMemory& before = std::prev(after)->second;
    if (before.base + before.bytes > base) {
      refuse(pointer, bytes,
             fmt::format("some of its pages are in a window already, the one at {}",
                         fmt::ptr(std::max(before.base, base))));
    }
  }
  if (!is_own(begin, end) || is_on_own_stack(begin, end)) {
    refuse(pointer, bytes,
           "only memory of the process's own can become a window: writable, from malloc() or an "
           "anonymous mmap(), and no stack");
  }
  Entry w = make(end - begin);
  std::byte* const made = w.base;
  w.base = base;
  w.registered = true;
  int why = ENOMEM;
  try {
    r.registered[pointer] = base;
    add(r, w);
    if (copy(SYS_pwrite64, w.fd, base, w.bytes) && replace(base, made, w.bytes)) {
      return {base, w.bytes};
    }
    why = errno;
    remove(r, w);
  } catch (const std::bad_alloc&) {  // nothing has changed
  }
  r.registered.erase(pointer);
  munmap(made, w.bytes);
  close(w.fd);
  refuse_window(w.bytes, why);
}

void unregister_memory(void* pointer) noexcept {
  Registry& r = registry();
  Entry w;
  bool still_mapped = false;  // the pages, where there is no memory for others: a window no more,
                              // because they may be freed next, but the memfd's
  {
    const std::lock_guard lock(r.mutex);
    const auto it = r.registered.find(pointer);
    if (it == r.registered.end()) return;
    w = r.by_base.at(it->second);
    void* const own =
        mmap(nullptr, w.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED || !copy(SYS_pread64, w.fd, static_cast<std::byte*>(own), w.bytes) ||
        !replace(w.base, own, w.bytes)) {
      if (own != MAP_FAILED) munmap(own, w.bytes);
      still_mapped = true;
    }
    r.registered.erase(it);
    remove(r, w);
  }
  release(w, still_mapped);
}

void deallocate(void* pointer) noexcept {
  if (pointer == nullptr) return;
  Registry& r = registry();
  Entry w;
  {
    const std::lock_guard lock(r.mutex);
    const auto it = r.by_base.find(static_cast<std::byte*>(pointer));
    if (it == r.by_base.end() || it->second.registered) return;
    w = it->second;
    munmap(w.base, w.bytes);
    remove(r, w);
  }
  release(w);
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
  const auto after = r.by_base.upper_bound(p);
  const Entry* found = after == r.by_base.begin() ? nullptr : &std::prev(after)->second;
  if (found == nullptr || !inside(*found)) found = adopt(r, p, bytes);
  if (found == nullptr || (found->heap && heap_closed.load())) return {};
  const std::uint64_t changes = r.changes.load(std::memory_order_relaxed);
  if (known.changes != changes) known = {changes, {}, 0};
  known.windows[known.oldest] = *found;
  known.oldest = (known.oldest + 1) % known.windows.size();
  return *found;
}

WindowMemory duplicate_window(const void* pointer, std::uint32_t id) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto after = r.by_base.upper_bound(static_cast<const std::byte*>(pointer));
  if (after == r.by_base.begin()) return {};
  WindowMemory w = std::prev(after)->second;
  if (w.id != id) return {};
  w.fd = above_standard(fcntl(w.fd, F_DUPFD_CLOEXEC, 0));
  if (w.fd < 0) throw_system_error("a window's descriptor cannot be duplicated", errno);
  return w;
}

void add_observer(WindowObserver& observer) {
  Registry& r = registry();
  const std::lock_guard lock(r.observers_mutex);
  r.observers.push_back(&observer);
}

void remove_observer(WindowObserver& observer) {
  Registry& r = registry();
  const std::lock_guard lock(r.observers_mutex);
  std::erase(r.observers, &observer);
}

}  // namespace tutti

// libtutti_windows.so, to be preloaded (`tutti run --windows`): malloc() and its relatives for a
// program that knows nothing of windows. Large blocks come from a heap that other ranks can map
// (heap.h); all others from the allocator that comes next, glibc's or any other.
//
// Nothing here may use thread-local memory or throw, as malloc() runs before and after everything.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "bindings/windows/heap.h"

#define TUTTI_INTERPOSED extern "C" __attribute__((visibility("default")))

namespace {

using tutti::heap::the_heap;

/// The functions that come next.
struct Next {
  void* (*malloc)(std::size_t);
  void* (*calloc)(std::size_t, std::size_t);
  void* (*realloc)(void*, std::size_t);
  void (*free)(void*);
  int (*posix_memalign)(void**, std::size_t, std::size_t);
  std::size_t (*malloc_usable_size)(void*);
};
constinit Next next{};
constinit std::atomic<int> state{0};  // 0: next is not there; 1: being looked up; 2: there

/// What is allocated while the next functions are looked up: dlsym() may allocate.
alignas(16) constinit std::byte first_memory[16 << 10] = {};
constinit std::atomic<std::size_t> first_used{0};

bool is_first(const void* pointer) {
  const auto* p = static_cast<const std::byte*>(pointer);
  return p >= first_memory && p < first_memory + sizeof first_memory;
}

void* first_block(std::size_t bytes) {
  // The size lies before the block.
  const std::size_t whole = (bytes + 31) / 16 * 16;
  const std::size_t at = first_used.fetch_add(whole);
  if (bytes > sizeof first_memory || at + whole > sizeof first_memory) return nullptr;
  std::memcpy(first_memory + at, &bytes, sizeof bytes);
  return first_memory + at + 16;
}

std::size_t first_size(const void* block) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, static_cast<const std::byte*>(block) - 16, sizeof bytes);
  return bytes;
}

/// The function of that name that comes next.
template <class F>
void look_up(F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
template <class F>
F next_function(const char* name) {
  F function = nullptr;
  look_up(function, name);
  return function;
}

/// False while they are looked up, which happens before the program has a second thread.
bool ready() {
  if (state.load(std::memory_order_acquire) == 2) return true;
  int none = 0;
  if (!state.compare_exchange_strong(none, 1)) return false;
  look_up(next.malloc, "malloc");
  look_up(next.calloc, "calloc");
  look_up(next.realloc, "realloc");
  look_up(next.free, "free");
  look_up(next.posix_memalign, "posix_memalign");
  look_up(next.malloc_usable_size, "malloc_usable_size");
  state.store(2, std::memory_order_release);
  return true;
}

/// Blocks of this size and more come from the heap: what a call moves in blocks, and few enough.
constexpr std::size_t kLeast = std::size_t{32} << 10;

bool is_large(std::size_t bytes) { return bytes >= kLeast; }

/// Null for small blocks, too.
void* from_heap(std::size_t bytes, std::size_t alignment, bool zeroed) {
  return is_large(bytes) ? the_heap().allocate(bytes, alignment, zeroed) : nullptr;
}

void* allocate(std::size_t bytes) {
  void* const block = from_heap(bytes, 1, false);
  return block != nullptr ? block : next.malloc(bytes);
}

/// As posix_memalign().
int allocate_aligned(void** result, std::size_t alignment, std::size_t bytes) {
  if (void* const block = from_heap(bytes, alignment, false)) {
    *result = block;
    return 0;
  }
  return next.posix_memalign(result, alignment, bytes);
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  if (!ready()) return nullptr;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  void* result = nullptr;
  const int error = allocate_aligned(&result, std::max(alignment, sizeof(void*)), bytes);
  if (error != 0) errno = error;
  return error == 0 ? result : nullptr;
}

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// Runs `forks`, which is a function of libc that calls fork().
template <class F>
pid_t with_private_heap(F forks) {
  if (const char* const why = the_heap().begin_fork()) {
    for (const char* const text : {"libtutti_windows: fork() fails: ", why, "\n"}) {
      [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
    }
    errno = EAGAIN;
    return -1;
  }
  const pid_t child = forks();
  const int error = errno;
  the_heap().end_fork();
  errno = error;
  return child;
}

// Registered before the handlers of the program and its libraries (by -z initfirst), so it locks
// after them: they may allocate, or wait for a thread that does. And after those of the next
// allocator, which registers them at its first use, so it locks before it: the heap asks it.
[[maybe_unused]] const int at_fork = [] {
  free(malloc(1));
  return pthread_atfork([] { the_heap().lock(); }, [] { the_heap().unlock(); },
                        [] { the_heap().unlock(); });
}();

bool heap_find(const void* pointer, std::size_t bytes, tutti::HeapSegment* segment) {
  return the_heap().find(pointer, bytes, segment);
}
void heap_add_user(const tutti::HeapUser* user) { the_heap().add_user(user); }

}  // namespace

// --- The C library's functions ------------------------------------------------------------------

TUTTI_INTERPOSED void* malloc(std::size_t bytes) noexcept {
  return ready() ? allocate(bytes) : first_block(bytes);
}

TUTTI_INTERPOSED void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (!ready()) return first_block(bytes);
  void* const block = from_heap(bytes, 1, true);
  return block != nullptr ? block : next.calloc(count, size);
}

TUTTI_INTERPOSED void free(void* pointer) noexcept {
  if (pointer == nullptr || is_first(pointer)) return;
  const int error = errno;
  if (the_heap().owns(pointer)) {
    the_heap().deallocate(pointer);
  } else if (ready()) {
    next.free(pointer);
  }
  errno = error;
}

TUTTI_INTERPOSED std::size_t malloc_usable_size(void* pointer) noexcept {
  if (pointer == nullptr) return 0;
  if (is_first(pointer)) return first_size(pointer);
  return the_heap().owns(pointer) ? the_heap().size_of(pointer) : next.malloc_usable_size(pointer);
}

TUTTI_INTERPOSED void* realloc(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return malloc(bytes);
  const bool ours = the_heap().owns(pointer);
  if (ours && bytes == 0) {
    free(pointer);
    return nullptr;
  }
  if (ours && is_large(bytes) && the_heap().resize(pointer, bytes)) return pointer;
  if (!ours && !is_first(pointer) && !is_large(bytes)) return next.realloc(pointer, bytes);
  void* const moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, pointer, std::min(bytes, malloc_usable_size(pointer)));
  free(pointer);
  return moved;
}

TUTTI_INTERPOSED void* reallocarray(void* pointer, std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(pointer, bytes);
}

TUTTI_INTERPOSED int posix_memalign(void** result, std::size_t alignment,
                                    std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return EINVAL;
  }
  return ready() ? allocate_aligned(result, alignment, bytes) : ENOMEM;
}

TUTTI_INTERPOSED void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return allocate_aligned(alignment, bytes);
}

TUTTI_INTERPOSED void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return allocate_aligned(alignment, bytes);
}

TUTTI_INTERPOSED void* valloc(std::size_t bytes) noexcept {
  return allocate_aligned(page_bytes(), bytes);
}

TUTTI_INTERPOSED void* pvalloc(std::size_t bytes) noexcept {
  const std::size_t page = page_bytes();
  return allocate_aligned(page, (bytes + page - 1) / page * page);
}

TUTTI_INTERPOSED pid_t fork() noexcept {
  static const auto real = next_function<pid_t (*)()>("fork");
  return with_private_heap([] { return real(); });
}

TUTTI_INTERPOSED int daemon(int nochdir, int noclose) noexcept {
  static const auto real = next_function<int (*)(int, int)>("daemon");
  return with_private_heap([&] { return real(nochdir, noclose); });
}

TUTTI_INTERPOSED pid_t forkpty(int* amaster, char* name, const termios* settings,
                               const winsize* size) noexcept {
  static const auto real =
      next_function<pid_t (*)(int*, char*, const termios*, const winsize*)>("forkpty");
  return with_private_heap([&] { return real(amaster, name, settings, size); });
}

TUTTI_INTERPOSED const tutti::WindowHeap* tutti_window_heap_1() {
  static constexpr tutti::WindowHeap kHeap{heap_find, heap_add_user};
  return &kHeap;
}

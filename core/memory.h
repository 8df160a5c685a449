// Memory that other ranks on this host can address (a window), for zero-copy collectives.
#pragma once

#include <cstddef>
#include <span>

namespace tutti {

/// `bytes` of zeroed, page-aligned memory in an anonymous memfd (nothing is named, nothing survives
/// the process). Collectives on it are the fastest. A call may use any pointer into it, a different
/// one on every rank. Children of fork() share it. Returns nullptr for 0 bytes. Throws
/// Error(system) if this process would have more window memory than the machine (or the container)
/// has, or if the system refuses. Thread-safe.
void* allocate(std::size_t bytes);
/// Frees memory of allocate(); ignores nullptr. No operation may use it any more.
void deallocate(void* pointer) noexcept;

/// Makes a window, in place, of the whole pages of existing memory, such as a framework's tensor:
/// they become pages of a memfd with the same contents. Returns these pages. The rest before and
/// behind them, less than a page each, stays as it was; so memory that should be a window to its
/// last byte begins and ends with a page. Call unregister_memory() before you free the memory;
/// until then children of fork() share the pages. No thread may write to them during the call, and
/// no device may have pinned them before. Throws Error(invalid_argument) if there is no whole page,
/// if the memory is not the process's own, writable and anonymous (mapped files, the stack), or if
/// its pages are in a window already. Throws Error(system) if the system refuses. Thread-safe.
std::span<std::byte> register_memory(void* pointer, std::size_t bytes);
/// Makes the pages ordinary ones again, with their contents. `pointer`: the registered one; any
/// other is ignored. No operation may use the pages, and no thread may write to them, during the
/// call.
void unregister_memory(void* pointer) noexcept;

/// An STL allocator: std::vector<float, tutti::Allocator<float>>.
template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(std::size_t n) {
    constexpr std::size_t kMost = static_cast<std::size_t>(-1) / sizeof(T);
    // A number of bytes that overflows is more than there is, too.
    return static_cast<T*>(tutti::allocate(n <= kMost ? n * sizeof(T) : kMost));
  }
  void deallocate(T* p, std::size_t) noexcept { tutti::deallocate(p); }
  template <class U>
  bool operator==(const Allocator<U>&) const {
    return true;
  }
};

}  // namespace tutti

// Memory that other ranks on this host can address (a window), for zero-copy collectives.
#pragma once

#include <cstddef>
#include <span>

namespace tutti {

/// `bytes` of zeroed, page-aligned memory in an anonymous memfd (nothing is named, nothing survives
/// the process). Collectives on it are the fastest; any pointer into it may be used, on every rank
/// a different one. Children of fork() share it. nullptr for 0 bytes. Throws Error(system) where
/// this process would have more window memory than there is on the machine (or in the container),
/// and where the system refuses. Thread-safe.
void* allocate(std::size_t bytes);
/// Frees what allocate() returned; nullptr is ignored. Not while an operation uses it.
void deallocate(void* pointer) noexcept;

/// Makes a window, in place, of the whole pages of memory that is there already, such as a
/// framework's tensor: they become those of a memfd with the same contents. Returns these pages;
/// what lies before and behind them, less than a page each, stays as it was, so memory that is to
/// be a window to its last byte begins and ends with a page. Until unregister_memory(), which must
/// come before the memory is freed, children of fork() share the pages. Nobody may write to them
/// during the call, nor may a device have pinned them before it. Throws Error(invalid_argument)
/// where there is no whole page, for memory that is not the process's own, writable and anonymous
/// (mapped files, stacks), or whose pages are in a window already; Error(system) where the system
/// refuses. Thread-safe.
std::span<std::byte> register_memory(void* pointer, std::size_t bytes);
/// The pages are ordinary ones again, with what they hold. `pointer`: as it was registered;
/// anything else is ignored. Not while an operation uses them, or anybody writes to them.
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
    // What is no number of bytes is more than there is, too.
    return static_cast<T*>(tutti::allocate(n <= kMost ? n * sizeof(T) : kMost));
  }
  void deallocate(T* p, std::size_t) noexcept { tutti::deallocate(p); }
  template <class U>
  bool operator==(const Allocator<U>&) const {
    return true;
  }
};

}  // namespace tutti

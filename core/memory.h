// Memory that other ranks on this host can address (a window), for zero-copy collectives.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tutti {

/// `bytes` of zeroed, page-aligned memory in an anonymous memfd (nothing is named, nothing survives
/// the process). Collectives on it are the fastest; any pointer into it may be used, on every rank
/// a different one. nullptr for 0 bytes. Throws std::bad_alloc. Thread-safe.
void* allocate(std::size_t bytes);
/// Frees what allocate() returned; nullptr is ignored. Not while an operation uses it.
void deallocate(void* pointer) noexcept;

/// Makes a window, in place, of memory that is there already, such as a framework's tensor: its
/// pages (whole ones, with what else lies on the first and the last) become those of a memfd with
/// the same contents. Nobody may write to them meanwhile. They must be unregistered before the
/// memory is freed; until then children of fork() share them. Throws Error(invalid_argument) for
/// memory that is not the process's own, writable and anonymous (mapped files, stacks), or whose
/// pages are in a window already; std::bad_alloc. Thread-safe.
void register_memory(void* pointer, std::size_t bytes);
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
    if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(tutti::allocate(n * sizeof(T)));
  }
  void deallocate(T* p, std::size_t) noexcept { tutti::deallocate(p); }
  template <class U>
  bool operator==(const Allocator<U>&) const {
    return true;
  }
};

}  // namespace tutti

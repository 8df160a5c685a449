// What libtutti_windows.so offers to the copies of Tutti in its process (libtutti.so, libnccl.so.2,
// a program that contains it): the program's large allocations, which are pages of memfds. Plain C
// data, as the two may be built by different compilers. bindings/windows has the other side.
#pragma once

#include <cstddef>

namespace tutti {

/// A part of the heap: memory that one memfd holds from its first byte to its last.
struct HeapSegment {
  std::byte* base;
  std::size_t bytes;
  int fd;
};

/// What a copy of Tutti lets the heap ask of it.
struct HeapUser {
  /// While it is closed, calls that begin find no window in the heap.
  void (*close)(bool closed);
  /// Whether a call may be reading or writing the heap, here or on another rank.
  bool (*in_use)();
  /// The segment becomes private memory. No call uses it.
  void (*retire)(std::byte* base);
  /// Whether a device knows pages of the heap by their physical addresses.
  bool (*pinned)();
};

struct WindowHeap {
  /// Whether all of [pointer, pointer + bytes) lies in one segment. Thread-safe.
  bool (*find)(const void* pointer, std::size_t bytes, HeapSegment* segment);
  /// Adds a user of the heap, for the life of the process.
  void (*add_user)(const HeapUser* user);
};

/// The name of `const WindowHeap* tutti_window_heap_1()`. Another layout has another number.
inline constexpr const char* kWindowHeapSymbol = "tutti_window_heap_1";

}  // namespace tutti

// The process's windows: the memory that tutti::allocate() handed out. A transport finds a window
// by any pointer into it, and passes the window's memfd to other processes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

struct WindowMemory {
  std::uint32_t id = 0;  // never reused in this process; 0: no window
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  int fd = -1;        // owned by the registry
  bool heap = false;  // of the program's heap (window_heap.h), which a fork() makes private
};

/// The window that holds all of [pointer, pointer + bytes), or one with id 0. Thread-safe, no lock
/// when the thread asks for one of its last four windows again.
WindowMemory find_window(const void* pointer, std::size_t bytes);

/// Window `id`, which holds `pointer`, with a descriptor that is the caller's; id 0 where it is
/// gone. Thread-safe.
WindowMemory duplicate_window(const void* pointer, std::uint32_t id);

/// Keeps a fork() from making the heap private while a call uses it. A thread holds the heap before
/// it asks find_window(), or the window may be private the next moment. Costs one load where no
/// heap is preloaded.
class HeapHold {
 public:
  HeapHold() = default;
  HeapHold(const HeapHold&) = delete;
  HeapHold& operator=(const HeapHold&) = delete;
  ~HeapHold() { release(); }
  void take() noexcept;
  void release() noexcept {
    if (held_) let_go();
  }

 private:
  void let_go() noexcept;

  bool held_ = false;
};

/// A device knows pages of the heap by their physical addresses from now on.
void note_pinned_heap() noexcept;

/// A party that has told other ranks of windows, and tells them when one is gone.
class WindowObserver {
 public:
  /// Window `id` is gone. Runs on the thread that has freed it.
  virtual void window_freed(std::uint32_t id) noexcept = 0;

 protected:
  ~WindowObserver() = default;
};
/// Takes effect at once, until it is removed. Both calls wait while windows are being freed.
void add_observer(WindowObserver& observer);
void remove_observer(WindowObserver& observer);

}  // namespace tutti

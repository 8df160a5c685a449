// The large allocations of a program, in memory that other ranks can map. Whole pages are cut from
// segments; a segment is a memfd. The addresses of all segments lie in one reserved range, so a
// look at a pointer tells whether it is the heap's.
//
// fork() gives parent and child a copy of memory each, and shared memory has no copies. So before a
// fork all segments become private memory: both sides keep their contents and go on as after any
// fork, and only later allocations lie in windows again.
//
// The program knows nothing of the memfds' descriptors. It may close them (as daemons close all),
// and open files of its own under their numbers. So each use looks first whether it is the memfd.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "bindings/windows/holes.h"
#include "core/window_heap.h"

namespace tutti::heap {

class Heap {
 public:
  /// Reserves the addresses. Where that fails allocate() gives nothing.
  Heap();

  /// Memory of whole pages, or null: there is none, and the caller asks the next allocator.
  /// `alignment`: a power of two. `zeroed`: it has to be.
  void* allocate(std::size_t bytes, std::size_t alignment, bool zeroed);
  /// Whether the memory is the heap's: a comparison.
  bool owns(const void* pointer) const {
    const auto* p = static_cast<const std::byte*>(pointer);
    return p >= begin_ && p < end_;
  }
  /// Of memory that it owns:
  void deallocate(void* pointer);
  std::size_t size_of(void* pointer);
  /// False: it cannot have that size where it is.
  bool resize(void* pointer, std::size_t bytes);

  bool find(const void* pointer, std::size_t bytes, HeapSegment* segment);
  void add_user(const HeapUser* user);

  /// Before fork(): all segments become private memory, and none is added until end_fork(). Null,
  /// or why that cannot be; then there is no end_fork().
  const char* begin_fork();
  /// After it, on both sides.
  void end_fork();
  /// Within it: what the child copies has to be whole. Taken after all other locks, because their
  /// holders look into the heap.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Segment : HeapSegment {
    dev_t device = 0;  // with inode: which file the memfd is
    ino_t inode = 0;
    bool is_private = false;  // it was forked: nothing new comes here
    std::size_t fresh = 0;    // from here on nothing was handed out yet
    Holes free;
    std::map<std::size_t, std::size_t> used;  // bytes, by offset
  };

  // With the lock held:
  Segment& segment_of(const void* pointer);
  void* allocate_from(Segment& segment, std::size_t bytes, std::size_t alignment, bool zeroed);
  Segment* add_segment(std::size_t bytes);
  std::byte* reserve(std::size_t bytes);
  void give_back(Segment& segment, std::size_t offset, std::size_t bytes);
  void trim();
  void unmap(Segment& segment);
  static bool has_memfd(const Segment& segment);
  static bool make_private(Segment& segment);
  static bool copy_to_private(Segment& segment);

  template <class Ask>
  bool any_user(Ask ask);
  void close_users(bool closed);
  bool wait_until_unused();

  std::mutex fork_mutex_;  // from begin_fork() to end_fork()
  std::mutex mutex_;       // no user is called while it is held
  bool forking_ = false;
  std::byte *begin_ = nullptr, *end_ = nullptr;
  std::map<const std::byte*, Segment> segments_;
  std::map<std::byte*, std::size_t> reserved_;  // addresses that are taken: bytes, by base
  std::size_t used_bytes_ = 0;
  std::size_t kept_bytes_ = 0;  // about: of pages that nothing uses, and that the system could have
  std::array<std::atomic<const HeapUser*>, 8> users_{};  // copies of Tutti in this process
};

/// Never destroyed: memory is freed until the very end.
Heap& the_heap();

}  // namespace tutti::heap

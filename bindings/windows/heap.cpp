#include "bindings/windows/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <new>
#include <utility>

namespace tutti::heap {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLeastSegment = std::size_t{64} << 20;
constexpr std::size_t kMostRoom = std::size_t{1} << 30;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kFirstDescriptor = 512;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::size_t physical_memory() { return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * kPage; }

/// A memfd larger than RLIMIT_FSIZE would end the process by a signal.
bool may_have_file_of(std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

/// -1 where it cannot be had.
int make_memfd(std::size_t bytes) {
  int fd = memfd_create("tutti-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  // Programs choose low numbers themselves (`exec 3>file` in a shell), which closes what was there.
  // Where none so high may be had, then at least not that of standard output, which may be closed.
  for (const int first : {kFirstDescriptor, STDERR_FILENO + 1}) {
    if (fd >= first) break;
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, first);
    if (high < 0) continue;
    close(fd);
    fd = high;
    break;
  }
  // Sealed, so that no process that maps it can be made to fault.
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

std::size_t offset_in(const HeapSegment& segment, const void* pointer) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - segment.base);
}

bool is_single_threaded() {
  // The kernel lists a thread for a moment after it was joined.
  constexpr int kLooks = 20;
  for (int look = 0; look < kLooks; ++look) {
    struct stat tasks {};
    if (stat("/proc/self/task", &tasks) != 0) return false;
    if (tasks.st_nlink == 3) return true;
    usleep(500);
  }
  return false;
}

}  // namespace

Heap::Heap() {
  // Addresses cost nothing. What was freed leaves gaps, hence the factor.
  const std::size_t bytes = round_up(8 * physical_memory(), kHugePage);
  void* const range =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  begin_ = static_cast<std::byte*>(range);
  end_ = begin_ + bytes;
}

void* Heap::allocate(std::size_t bytes, std::size_t alignment, bool zeroed) {
  if (begin_ == nullptr || bytes > static_cast<std::size_t>(end_ - begin_)) return nullptr;
  const std::size_t size = round_up(std::max(bytes, std::size_t{1}), kPage);
  const std::size_t apart = std::max(alignment, kPage);
  const std::lock_guard lock(mutex_);
  if (forking_) return nullptr;
  for (auto& [base, segment] : segments_) {
    if (void* const block = allocate_from(segment, size, apart, zeroed)) return block;
  }
  Segment* const segment = add_segment(size + (apart > kPage ? apart : 0));
  return segment == nullptr ? nullptr : allocate_from(*segment, size, apart, zeroed);
}

void* Heap::allocate_from(Segment& segment, std::size_t bytes, std::size_t alignment, bool zeroed) {
  if (segment.is_private || bytes > segment.bytes) return nullptr;
  // (The nodes of Holes are small, and come from the next allocator.)
  const auto hole =
      segment.free.take(bytes, alignment, reinterpret_cast<std::uintptr_t>(segment.base));
  if (!hole) return nullptr;
  const std::size_t at = *hole;
  segment.used[at] = bytes;
  used_bytes_ += bytes;
  if (at < segment.fresh) kept_bytes_ -= std::min(kept_bytes_, bytes);
  std::byte* const block = segment.base + at;
  if (zeroed && at < segment.fresh) std::memset(block, 0, std::min(bytes, segment.fresh - at));
  segment.fresh = std::max(segment.fresh, at + bytes);
  return block;
}

Heap::Segment* Heap::add_segment(std::size_t bytes) {
  // Few segments, as each takes a descriptor; peers map one at a time. There is room behind a large
  // block: one that grows step by step would move, and leave a segment, at each step. (What nobody
  // writes to costs addresses alone.)
  const std::size_t room = std::max(std::clamp(used_bytes_ / 4, kLeastSegment, kMostRoom), bytes);
  std::size_t size = round_up(bytes + room, kHugePage);
  if (size > physical_memory() || !may_have_file_of(size)) size = round_up(bytes, kHugePage);
  if (size > physical_memory() || !may_have_file_of(size)) return nullptr;
  std::byte* const base = reserve(size);
  if (base == nullptr) return nullptr;
  const int fd = make_memfd(size);
  struct stat file {};
  const bool made =
      fd >= 0 && fstat(fd, &file) == 0 &&
      mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  if (!made) {
    if (fd >= 0) close(fd);
    reserved_.erase(base);
    return nullptr;
  }
  Segment& segment = segments_[base];
  segment.base = base;
  segment.bytes = size;
  segment.fd = fd;
  segment.device = file.st_dev;
  segment.inode = file.st_ino;
  segment.free.add(0, size);
  return &segment;
}

std::byte* Heap::reserve(std::size_t bytes) {
  std::byte* at = begin_;
  for (const auto& [base, taken] : reserved_) {
    if (static_cast<std::size_t>(base - at) >= bytes) break;
    at = base + taken;
  }
  if (static_cast<std::size_t>(end_ - at) < bytes) return nullptr;
  reserved_[at] = bytes;
  return at;
}

Heap::Segment& Heap::segment_of(const void* pointer) {
  return std::prev(segments_.upper_bound(static_cast<const std::byte*>(pointer)))->second;
}

void Heap::give_back(Segment& segment, std::size_t offset, std::size_t bytes) {
  used_bytes_ -= bytes;
  kept_bytes_ += bytes;
  segment.free.add(offset, bytes);
}

void Heap::trim() {
  // A step of a training loop frees what the next one takes again, and new pages cost time.
  if (kept_bytes_ <= std::max(kLeastSegment, used_bytes_ / 4)) return;
  kept_bytes_ = 0;
  // (It asks for a flag alone.)
  if (any_user([](const HeapUser& user) { return user.pinned(); })) return;
  for (auto& [base, segment] : segments_) {
    for (const auto& [offset, bytes] : segment.free.by_offset()) {
      if (offset >= segment.fresh) continue;
      madvise(segment.base + offset, bytes, segment.is_private ? MADV_DONTNEED : MADV_REMOVE);
    }
  }
}

void Heap::deallocate(void* pointer) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segment_of(pointer);
  const auto offset = offset_in(segment, pointer);
  const auto block = segment.used.find(offset);
  if (block == segment.used.end()) {
    static constexpr char kText[] = "free(): invalid pointer (libtutti_windows)\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
    abort();
  }
  give_back(segment, offset, block->second);
  segment.used.erase(block);
  if (segment.is_private && segment.used.empty()) return unmap(segment);
  trim();
}

void Heap::unmap(Segment& segment) {
  mmap(segment.base, segment.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  reserved_.erase(segment.base);
  segments_.erase(segment.base);
}

std::size_t Heap::size_of(void* pointer) {
  const std::lock_guard lock(mutex_);
  const Segment& segment = segment_of(pointer);
  return segment.used.at(offset_in(segment, pointer));
}

bool Heap::resize(void* pointer, std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(end_ - begin_)) return false;
  const std::size_t wanted = round_up(std::max(bytes, std::size_t{1}), kPage);
  const std::lock_guard lock(mutex_);
  Segment& segment = segment_of(pointer);
  const auto offset = offset_in(segment, pointer);
  std::size_t& has = segment.used.at(offset);
  if (wanted > has) {
    const std::size_t more = wanted - has;
    if (segment.is_private || !segment.free.take_at(offset + has, more)) return false;
    segment.fresh = std::max(segment.fresh, offset + wanted);
    used_bytes_ += more;
  } else if (wanted < has) {
    give_back(segment, offset + wanted, has - wanted);
  }
  has = wanted;
  return true;
}

bool Heap::find(const void* pointer, std::size_t bytes, HeapSegment* found) {
  if (!owns(pointer)) return false;
  const std::lock_guard lock(mutex_);
  const auto* p = static_cast<const std::byte*>(pointer);
  const auto after = segments_.upper_bound(p);
  if (after == segments_.begin()) return false;
  const Segment& segment = std::prev(after)->second;
  const auto offset = offset_in(segment, p);
  if (segment.is_private || offset > segment.bytes || bytes > segment.bytes - offset) return false;
  if (!has_memfd(segment)) return false;
  *found = segment;
  return true;
}

void Heap::add_user(const HeapUser* user) {
  for (auto& place : users_) {
    const HeapUser* none = nullptr;
    if (place.compare_exchange_strong(none, user)) return;
  }
}

template <class Ask>
bool Heap::any_user(Ask ask) {
  return std::any_of(users_.begin(), users_.end(), [&](const auto& user) {
    const HeapUser* const u = user.load();
    return u != nullptr && ask(*u);
  });
}

void Heap::close_users(bool closed) {
  any_user([&](const HeapUser& user) { return user.close(closed), false; });
}

bool Heap::wait_until_unused() {
  constexpr time_t kPatience = 10;  // seconds
  constexpr timespec kLittle{0, 200'000};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (const time_t end = now.tv_sec + kPatience; now.tv_sec < end;
       clock_gettime(CLOCK_MONOTONIC, &now)) {
    if (!any_user([](const HeapUser& user) { return user.in_use(); })) return true;
    nanosleep(&kLittle, nullptr);
  }
  return false;
}

bool Heap::has_memfd(const Segment& segment) {
  struct stat file {};
  return fstat(segment.fd, &file) == 0 && file.st_dev == segment.device &&
         file.st_ino == segment.inode;
}

bool Heap::make_private(Segment& segment) {
  if (!has_memfd(segment)) return copy_to_private(segment);
  // Both mappings have the same pages until a thread writes to the private one. So nothing that
  // another thread writes meanwhile is lost.
  if (mmap(segment.base, segment.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, segment.fd,
           0) == MAP_FAILED) {
    return false;
  }
  close(segment.fd);
  segment.fd = -1;
  segment.is_private = true;
  return true;
}

bool Heap::copy_to_private(Segment& segment) {
  if (!is_single_threaded()) return false;  // what others write meanwhile would be lost
  void* const own = mmap(nullptr, segment.bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return false;
  for (const auto& [offset, bytes] : segment.used) {
    std::memcpy(static_cast<std::byte*>(own) + offset, segment.base + offset, bytes);
  }
  if (mremap(own, segment.bytes, segment.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, segment.base) ==
      MAP_FAILED) {
    munmap(own, segment.bytes);
    return false;
  }
  segment.fd = -1;
  segment.is_private = true;
  return true;
}

const char* Heap::begin_fork() {
  fork_mutex_.lock();
  std::list<std::byte*> shared;
  {
    const std::lock_guard lock(mutex_);
    forking_ = true;
    for (auto& [base, segment] : segments_) {
      if (!segment.is_private) shared.push_back(segment.base);
    }
  }
  close_users(true);
  const char* why = nullptr;
  if (!wait_until_unused()) {
    why =
        "a collective uses this process's memory, and did not end within 10 s; wait for it before "
        "the fork";
  }
  for (std::byte* const base : shared) {
    if (why != nullptr) break;
    any_user([&](const HeapUser& user) { return user.retire(base), false; });
  }
  {
    // Shared segments do not go away by themselves.
    const std::lock_guard lock(mutex_);
    for (std::byte* const base : shared) {
      if (why != nullptr) break;
      Segment& segment = segments_.at(base);
      if (!make_private(segment)) {
        why =
            "the system does not make the heap's memory private (a limit on memory, or the program "
            "has closed descriptors that it did not open); fork earlier, or do not preload";
      } else if (segment.used.empty()) {
        unmap(segment);
      }
    }
  }
  close_users(false);
  if (why != nullptr) end_fork();
  return why;
}

void Heap::end_fork() {
  {
    const std::lock_guard lock(mutex_);
    forking_ = false;
  }
  fork_mutex_.unlock();
}

Heap& the_heap() {
  // Placed in memory of its own, as new would ask malloc(), which asks the heap.
  alignas(Heap) static std::byte place[sizeof(Heap)];
  static Heap* const heap = new (place) Heap;
  return *heap;
}

}  // namespace tutti::heap

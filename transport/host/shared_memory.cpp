#include "transport/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/error.h"
#include "core/host_memory.h"

namespace tutti {
namespace {

std::byte* map_shared(int fd, std::size_t bytes, std::size_t offset = 0) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                 static_cast<off_t>(offset));
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::string_view label, std::size_t bytes,
                                                   std::size_t mapped) {
  if (mapped == 0) mapped = bytes;
  check_file_limit(bytes);
  FileDescriptor fd(memfd_create(std::string(label).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_system_error("cannot create shared memory (memfd_create)");
  const int file = fd.fd();
  std::shared_ptr<SharedMemory> memory(
      new SharedMemory(bytes, mapped, std::make_shared<const FileDescriptor>(std::move(fd))));
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    memory->data_ = map_shared(file, mapped);
  }
  if (memory->data_ == nullptr) {
    throw_system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  }
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::map(FileDescriptor fd, std::size_t bytes,
                                                std::size_t mapped) {
  const bool stays_open = mapped > 0;
  if (!stays_open) mapped = bytes;
  struct stat status {};
  const bool fits = fstat(fd.fd(), &status) == 0 && status.st_size >= 0 &&
                    static_cast<std::size_t>(status.st_size) >= bytes && bytes > 0;
  const int seals = fcntl(fd.fd(), F_GET_SEALS);
  if (!fits || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::system, "a peer passed memory that is not a sealed memfd of " +
                                       std::to_string(bytes) + " bytes");
  }
  std::shared_ptr<SharedMemory> memory(new SharedMemory(bytes, mapped, nullptr));
  memory->data_ = map_shared(fd.fd(), mapped);
  if (memory->data_ == nullptr) throw_system_error("cannot map a peer's shared memory");
  memory->met_ = std::vector<std::atomic<std::uint64_t>>(mapped / kMetBytes / 64 + 2);
  if (stays_open) memory->file_ = std::make_shared<const FileDescriptor>(std::move(fd));
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::part(std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<SharedMemory>& known = parts_[offset];
  if (auto part = known.lock()) return part;
  std::shared_ptr<SharedMemory> part(new SharedMemory(bytes, bytes, file_, offset));
  part->data_ = map_shared(fd(), bytes, offset);
  if (part->data_ == nullptr) {
    throw_system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  }
  known = part;
  return part;
}

void SharedMemory::give_back(std::span<std::byte> pages) const noexcept {
  if (pages.empty()) return;
  fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset_) + static_cast<off_t>(pages.data() - data_),
            static_cast<off_t>(pages.size()));
}

void SharedMemory::meet(const std::byte* at, std::size_t bytes) noexcept {
  const auto number = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const std::size_t before = number(data_) / kMetBytes;
  for (const std::byte* const end = at + bytes; at < end;) {
    const std::size_t block = number(at) / kMetBytes;
    std::atomic<std::uint64_t>& word = met_[(block - before) / 64];
    const std::uint64_t bit = std::uint64_t{1} << (block - before) % 64;
    // relaxed: who has not heard of it reads once more.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      static_cast<void>(*static_cast<const volatile std::byte*>(at));
      word.fetch_or(bit, std::memory_order_relaxed);
    }
    at = reinterpret_cast<const std::byte*>((block + 1) * kMetBytes);  // NOLINT: the next one
  }
}

void SharedMemory::let_go() noexcept {
  // Made elsewhere and then moved here: a mapping that fails in its place may leave a hole.
  void* const own = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return;
  if (mremap(own, mapped_, mapped_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    munmap(own, mapped_);
  }
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

}  // namespace tutti

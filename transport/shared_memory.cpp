#include "transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/error.h"

namespace tutti {
namespace {

std::byte* map_shared(int fd, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::create(std::string_view label, std::size_t bytes) {
  const int fd = memfd_create(std::string(label).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw_system_error("cannot create shared memory (memfd_create)");
  std::byte* data = nullptr;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    data = map_shared(fd, bytes);
  }
  if (data == nullptr) {
    const int error = errno;
    close(fd);
    throw_system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", error);
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes, fd));
}

std::shared_ptr<SharedMemory> SharedMemory::map(FileDescriptor fd, std::size_t bytes) {
  struct stat status {};
  const bool fits = fstat(fd.fd(), &status) == 0 && status.st_size >= 0 &&
                    static_cast<std::size_t>(status.st_size) >= bytes && bytes > 0;
  const int seals = fcntl(fd.fd(), F_GET_SEALS);
  if (!fits || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorCode::system, "a peer passed memory that is not a sealed memfd of " +
                                       std::to_string(bytes) + " bytes");
  }
  std::byte* data = map_shared(fd.fd(), bytes);
  if (data == nullptr) throw_system_error("cannot map a peer's shared memory");
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes, -1));
}

void SharedMemory::give_back(std::span<std::byte> pages) const noexcept {
  if (pages.empty()) return;
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(pages.data() - data_), static_cast<off_t>(pages.size()));
}

std::size_t SharedMemory::taken() const noexcept {
  constexpr std::size_t kBlock = 512;  // whatever the file system's is
  struct stat status {};
  return fstat(fd_, &status) == 0 ? static_cast<std::size_t>(status.st_blocks) * kBlock : 0;
}

void SharedMemory::let_go() noexcept {
  // Made elsewhere and then moved here: a mapping that fails in its place may leave a hole.
  void* const own = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return;
  if (mremap(own, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    munmap(own, bytes_);
  }
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace tutti

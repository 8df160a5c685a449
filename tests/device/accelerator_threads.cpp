// Threads in the place of GPUs (TEST_GPUS of them), whose memory other processes can map: every
// piece is a memfd of its own.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "comm/impl.h"
#include "tests/collectives/cuda/cuda_host_device.h"
#include "tests/device/accelerator.h"

namespace tutti::test {
namespace {

std::uint32_t number_of(const char* variable) {
  const char* const number = std::getenv(variable);
  return number != nullptr ? static_cast<std::uint32_t>(std::atoi(number)) : 0;
}

/// The owner of this memory; -1: none.
int owner_of(const std::byte* memory);

class ProcessDevice : public HostDevice {
 public:
  explicit ProcessDevice(int ordinal) : ordinal_(ordinal) {}

  Identity identity() const override { return {static_cast<std::uint64_t>(ordinal_), 2}; }
  Reach reach(const Identity& other) override {
    return other == identity() ? Reach::whole_lines : Reach::memory;
  }
  bool can_address(const std::byte* memory) override;
  std::byte* allocate(std::size_t bytes) override {
    return allocate(bytes, Accelerator::Memory::shareable);
  }
  std::byte* allocate(std::size_t bytes, Accelerator::Memory kind) {
    FileDescriptor fd(memfd_create("device", MFD_CLOEXEC));
    if (!fd || ftruncate(fd.fd(), static_cast<off_t>(bytes)) != 0) {
      throw_system_error("memory of a device");
    }
    const std::lock_guard lock(mutex_);
    // Where memory of this size has been freed, as allocators do it.
    void* at = MAP_FAILED;
    if (const auto freed = freed_.extract(bytes)) {
      at = mmap(freed.mapped(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                fd.fd(), 0);
    }
    if (at == MAP_FAILED) {
      at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.fd(), 0);
    }
    if (at == MAP_FAILED) throw_system_error("memory of a device");
    const bool shareable = kind == Accelerator::Memory::shareable;
    pieces_[static_cast<std::byte*>(at)] = {std::move(fd), bytes, ++allocations_, shareable};
    return static_cast<std::byte*>(at);
  }
  void deallocate(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(memory);
    munmap(memory, piece->second.bytes);
    freed_[piece->second.bytes] = memory;
    pieces_.erase(piece);
  }
  /// By another way than the kernels' own, as copies go on a GPU.
  void upload(std::byte* to, std::span<const std::byte> from) override {
    const std::lock_guard lock(mutex_);
    const auto piece = piece_of(to);
    if (pwrite(piece->second.fd.fd(), from.data(), from.size(), to - piece->first) !=
        static_cast<ssize_t>(from.size())) {
      throw_system_error("a copy to a device");
    }
  }
  bool is_shareable(const std::byte* memory) {
    const std::lock_guard lock(mutex_);
    return piece_of(memory)->second.shareable;
  }
  CudaAllocation allocation(const std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    const auto piece = piece_of(memory);
    if (piece == pieces_.end()) return {};
    return {piece->first, piece->second.bytes, piece->second.id, nullptr};
  }
  CudaExport share(const std::byte* memory, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const Piece& piece = pieces_.at(const_cast<std::byte*>(memory));
    CudaExport e;
    e.why = "it is not shareable";
    if (!piece.shareable) return e;
    e.handle.kinds = CudaMemoryHandle::kFd;
    e.handle.reserved = number_of("TEST_CONTAINER");
    e.handle.bytes = bytes;
    e.fd = FileDescriptor(fcntl(piece.fd.fd(), F_DUPFD_CLOEXEC, 0));
    return e;
  }
  device::Mapping map(const CudaMemoryHandle& handle, const FileDescriptor& fd) override {
    if (handle.reserved != 0 && handle.reserved == number_of("TEST_CANNOT_MAP")) {
      throw Error(ErrorCode::system, "it is another container's");
    }
    const std::size_t bytes = handle.bytes;
    struct stat s {};
    if (fstat(fd.fd(), &s) != 0 || static_cast<std::size_t>(s.st_size) < bytes) {
      throw Error(ErrorCode::invalid_argument, "a peer's memory is smaller than it says");
    }
    // Past ThreadSanitizer, which takes this for writes, and cannot see that the kernels' accesses
    // come later: what orders them goes through other processes.
    void* const at = reinterpret_cast<void*>(
        syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.fd(), 0));
    if (at == MAP_FAILED) throw_system_error("memory of another process's device");
    const std::shared_ptr<const void> owner(
        at, [bytes](const void* p) { syscall(SYS_munmap, p, bytes); });
    return {owner, static_cast<std::byte*>(at), bytes};
  }

 private:
  struct Piece {
    FileDescriptor fd;
    std::size_t bytes = 0;
    std::uint64_t id = 0;
    bool shareable = true;
  };
  using Pieces = std::map<std::byte*, Piece>;

  Pieces::iterator piece_of(const std::byte* at) {
    auto piece = pieces_.upper_bound(const_cast<std::byte*>(at));
    if (piece == pieces_.begin()) return pieces_.end();
    --piece;
    return at < piece->first + piece->second.bytes ? piece : pieces_.end();
  }

  int ordinal_;
  std::mutex mutex_;
  Pieces pieces_;
  std::map<std::size_t, std::byte*> freed_;  // by size
  std::uint64_t allocations_ = 0;
};

const std::vector<std::shared_ptr<ProcessDevice>>& devices() {
  static const auto all = [] {
    std::vector<std::shared_ptr<ProcessDevice>> made;
    for (int i = 0; i < accelerators(); ++i) made.push_back(std::make_shared<ProcessDevice>(i));
    return made;
  }();
  return all;
}

int owner_of(const std::byte* memory) {
  for (std::size_t i = 0; i < devices().size(); ++i) {
    if (devices()[i]->allocation(memory).bytes > 0) return static_cast<int>(i);
  }
  return -1;
}

bool ProcessDevice::can_address(const std::byte* memory) {
  return devices().at(static_cast<std::size_t>(owner_of(memory)))->is_shareable(memory);
}

class Threads : public Accelerator {
 public:
  explicit Threads(int ordinal) : device_(*devices()[static_cast<std::size_t>(ordinal)]) {}

  void adopt(Communicator& communicator) override {
    communicator.impl().gpus = {
        [](const void* memory) { return owner_of(static_cast<const std::byte*>(memory)); },
        [] { return 0; },
        [](int ordinal) -> std::shared_ptr<device::Device> {
          return devices()[static_cast<std::size_t>(ordinal)];
        }};
  }
  using Accelerator::allocate;
  std::byte* allocate(std::size_t bytes, Memory memory) override {
    return device_.allocate(bytes, memory);
  }
  void release(std::byte* at, Memory) override { device_.deallocate(at); }
  void write(std::byte* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void read(void* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void* stream() override { return this; }
  void synchronize() override {}
  void repeat(int times, const std::function<void()>& body) override {
    for (int i = 0; i < times; ++i) body();
  }
  int many_launches() const override { return 10; }  // a graph is a loop here, and each turn slow
  std::size_t free_bytes() override { return 0; }

 private:
  ProcessDevice& device_;
};

}  // namespace

int accelerators() { return std::max(static_cast<int>(number_of("TEST_GPUS")), 1); }
std::unique_ptr<Accelerator> open_accelerator(int ordinal) {
  return std::make_unique<Threads>(ordinal);
}

}  // namespace tutti::test

// Threads in a GPU's place, whose memory other processes can map: every piece is a memfd of its
// own.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "comm/impl.h"
#include "tests/accelerator.h"
#include "tests/cuda_host_device.h"

namespace tutti::test {
namespace {

class ProcessDevice : public HostDevice {
 public:
  std::byte* allocate(std::size_t bytes) override {
    FileDescriptor fd(memfd_create("device", MFD_CLOEXEC));
    void* const at = fd && ftruncate(fd.fd(), static_cast<off_t>(bytes)) == 0
                         ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.fd(), 0)
                         : MAP_FAILED;
    if (at == MAP_FAILED) throw_system_error("memory of a device");
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<std::byte*>(at)] = {std::move(fd), bytes};
    return static_cast<std::byte*>(at);
  }
  void deallocate(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(memory);
    munmap(memory, piece->second.bytes);
    pieces_.erase(piece);
  }
  CudaExport share(const std::byte* memory, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const Piece& piece = pieces_.at(const_cast<std::byte*>(memory));
    CudaExport e;
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
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.fd(), 0);
    if (at == MAP_FAILED) throw_system_error("memory of another process's device");
    const std::shared_ptr<const void> owner(
        at, [bytes](const void* p) { munmap(const_cast<void*>(p), bytes); });
    return {owner, static_cast<std::byte*>(at), bytes};
  }

 private:
  static std::uint32_t number_of(const char* variable) {
    const char* const number = std::getenv(variable);
    return number != nullptr ? static_cast<std::uint32_t>(std::atoi(number)) : 0;
  }
  struct Piece {
    FileDescriptor fd;
    std::size_t bytes = 0;
  };
  std::mutex mutex_;
  std::map<std::byte*, Piece> pieces_;
};

std::shared_ptr<device::Device> the_device() {
  static const auto device = std::make_shared<ProcessDevice>();
  return device;
}

class Threads : public Accelerator {
 public:
  void adopt(Communicator& communicator) override {
    communicator.impl().gpus = {[](const void*) { return 0; }, [] { return 0; },
                                [](int) { return the_device(); }};
  }
  std::byte* allocate(std::size_t bytes) override { return the_device()->allocate(bytes); }
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
  std::size_t free_bytes() override { return 0; }
};

}  // namespace

std::unique_ptr<Accelerator> open_accelerator() { return std::make_unique<Threads>(); }

}  // namespace tutti::test

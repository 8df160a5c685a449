// A GPU whose memory no processor touches: what allocate() gives cannot be accessed. Kernels, and
// network cards (card_network.h), have mappings of their own.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/collectives/cuda/cuda_host_device.h"
#include "tests/transport/card_network.h"

namespace tutti::test {

class CardGpu final : public HostDevice {
 public:
  RdmaOrder order = RdmaOrder::always;
  bool has_dma_bufs = true;
  int flushes = 0;  // so far

  ~CardGpu() override {
    if (!pieces_.empty()) std::abort();  // memory that was never freed
  }

  std::byte* allocate(std::size_t bytes) override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    Piece piece;
    piece.bytes = (bytes + page - 1) / page * page;
    piece.file = FileDescriptor(memfd_create("gpu", MFD_CLOEXEC));
    const auto length = static_cast<off_t>(piece.bytes);
    struct stat file {};
    if (!piece.file || ftruncate(piece.file.fd(), length) != 0 ||
        fstat(piece.file.fd(), &file) != 0) {
      throw_system_error("memory of a GPU");
    }
    piece.inode = file.st_ino;
    void* const at = mmap(nullptr, piece.bytes, PROT_NONE, MAP_SHARED, piece.file.fd(), 0);
    void* const seen =
        mmap(nullptr, piece.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece.file.fd(), 0);
    if (at == MAP_FAILED || seen == MAP_FAILED) throw_system_error("memory of a GPU");
    piece.seen = static_cast<std::byte*>(seen);
    std::byte* const kernels = piece.seen;
    if (order == RdmaOrder::with_flush) {
      set_card_writes(piece.inode, [this, kernels](std::size_t offset, const std::byte* from,
                                                   std::size_t written) {
        const std::lock_guard lock(mutex_);
        late_.push_back({kernels + offset, {from, from + written}});
      });
    }
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<std::byte*>(at)] = std::move(piece);
    return static_cast<std::byte*>(at);
  }
  void deallocate(std::byte* memory) noexcept override {
    std::unique_lock lock(mutex_);
    const auto piece = pieces_.extract(memory);
    // Without the lock, which a card that writes takes after its own.
    lock.unlock();
    set_card_writes(piece.mapped().inode, {});
    lock.lock();
    const std::byte* const seen = piece.mapped().seen;
    std::erase_if(late_, [&](const Late& late) {
      return late.to >= seen && late.to < seen + piece.mapped().bytes;
    });
    munmap(memory, piece.mapped().bytes);
    munmap(piece.mapped().seen, piece.mapped().bytes);
  }
  FileDescriptor dma_buf(const std::byte* memory, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const auto piece = pieces_.find(const_cast<std::byte*>(memory));
    if (!has_dma_bufs || piece == pieces_.end() || piece->second.bytes < bytes) {
      throw Error(ErrorCode::system, "this GPU shares nothing with other devices");
    }
    return FileDescriptor(fcntl(piece->second.file.fd(), F_DUPFD_CLOEXEC, 0));
  }
  RdmaOrder rdma_order() override { return order; }
  void flush_rdma_writes() override {
    const std::lock_guard lock(mutex_);
    ++flushes;
    for (const Late& late : late_) std::ranges::copy(late.bytes, late.to);
    late_.clear();
  }

  /// As kernels see it.
  std::byte* seen(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    const auto piece = std::prev(pieces_.upper_bound(memory));
    return piece->second.seen + (memory - piece->first);
  }
  std::size_t allocations() {
    const std::lock_guard lock(mutex_);
    return pieces_.size();
  }

 private:
  struct Piece {
    FileDescriptor file;
    ino_t inode = 0;
    std::size_t bytes = 0;
    std::byte* seen = nullptr;
  };
  struct Late {
    std::byte* to;
    std::vector<std::byte> bytes;
  };

  std::mutex mutex_;
  std::map<std::byte*, Piece> pieces_;
  std::vector<Late> late_;  // what cards have written, before a flush
};

}  // namespace tutti::test

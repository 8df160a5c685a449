// A memfd mapped into this process: nothing is named, so nothing is left behind after kill -9.
// The memory of ranks that are threads of one process is mapped once and shared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

class SharedMemory {
 public:
  /// `bytes` of zeroes, sealed against resizing; the first `mapped` of them are mapped (0: all).
  /// Pages are taken when they are first touched.
  static std::shared_ptr<SharedMemory> create(std::string_view label, std::size_t bytes,
                                              std::size_t mapped = 0);
  /// Maps what `fd` stands for. Throws Error(system) unless it is a memfd of at least
  /// `bytes`, sealed against shrinking (a peer must not be able to make our loads fault).
  /// `mapped`: only the first of them, and the descriptor stays open. 0: all of them, and it does
  /// not.
  static std::shared_ptr<SharedMemory> map(FileDescriptor fd, std::size_t bytes,
                                           std::size_t mapped = 0);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// The `bytes` from `offset` on, a multiple of the page size, of memory that has a descriptor.
  /// All callers that ask for the same part share one mapping, as long as one of them holds it.
  /// Thread-safe.
  std::shared_ptr<SharedMemory> part(std::size_t offset, std::size_t bytes);

  /// Gives back these pages (whole_pages()), which are zeros from now on, for all processes. Does
  /// nothing where there is no descriptor, or the kernel refuses that.
  void give_back(std::span<std::byte> pages) const noexcept;

  /// Before `bytes` at `at`, in the mapping of all of it, are written for the first time: has the
  /// kernel map their pages, 64 KiB at a time. It does so where one of them is read, at a tenth of
  /// what a page costs that is written first (docs/experiments.md#pages-of-peers-windows-ahead).
  void meet(const std::byte* at, std::size_t bytes) noexcept;

  /// Lets go of the memory, because its owner needs it no more, but not of its addresses: a thread
  /// that still reads and writes there finds zeros, and memory of this process's own. (The memory
  /// stays where the kernel refuses that.)
  void let_go() noexcept;

  std::byte* data() const { return data_; }
  /// Of the memory, which may be more than is mapped.
  std::size_t size() const { return bytes_; }
  int fd() const { return file_ ? file_->fd() : -1; }  // -1 once mapped whole from a peer

 private:
  /// Not mapped yet: what is mapped has an owner from the start.
  SharedMemory(std::size_t bytes, std::size_t mapped, std::shared_ptr<const FileDescriptor> file,
               std::size_t offset = 0)
      : bytes_(bytes), mapped_(mapped), file_(std::move(file)), offset_(offset) {}

  static constexpr std::size_t kMetBytes = std::size_t{64} << 10;  // Linux' fault_around_bytes
  std::byte* data_ = nullptr;
  std::size_t bytes_, mapped_;
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t offset_;  // of data_ in it
  std::mutex mutex_;
  std::map<std::size_t, std::weak_ptr<SharedMemory>> parts_;  // by offset
  std::vector<std::atomic<std::uint64_t>> met_;  // a bit for each kMetBytes of addresses, once met
};

}  // namespace tutti

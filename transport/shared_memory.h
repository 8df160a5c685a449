// A memfd mapped into this process: nothing is named, so nothing is left behind after kill -9.
// The memory of ranks that are threads of one process is mapped once and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "transport/socket.h"

namespace tutti {

class SharedMemory {
 public:
  /// `bytes` of zeroes, sealed against resizing. Pages are taken when they are first touched.
  static std::shared_ptr<SharedMemory> create(std::string_view label, std::size_t bytes);
  /// Maps what `fd` stands for. Throws Error(system) unless it is a memfd of at least
  /// `bytes`, sealed against shrinking (a peer must not be able to make our loads fault).
  static std::shared_ptr<SharedMemory> map(FileDescriptor fd, std::size_t bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Gives back these pages (whole_pages()), which are zeros from now on, for all processes. The
  /// owner's alone; does nothing where the kernel refuses that.
  void give_back(std::span<std::byte> pages) const noexcept;
  /// Bytes that it takes. The owner's alone.
  std::size_t taken() const noexcept;

  /// Lets go of the memory, whose owner needs it no more, but not of its addresses: a thread that
  /// still reads and writes there finds zeros, and memory of this process's own. (The memory stays
  /// where the kernel refuses that.)
  void let_go() noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  int fd() const { return fd_; }  // -1 once mapped from a peer

 private:
  SharedMemory(std::byte* data, std::size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}

  std::byte* data_;
  std::size_t bytes_;
  int fd_;
};

}  // namespace tutti

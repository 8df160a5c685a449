// What device_rank.cpp runs on: GPUs, or threads in their place (one of the two is
// linked).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace tutti::test {

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  /// Has `communicator` run its calls with stream() here. For each new one.
  virtual void adopt(Communicator& communicator) = 0;

  enum class Memory { shareable, unshareable };  // with other processes, and GPUs
  virtual std::byte* allocate(std::size_t bytes, Memory memory) = 0;
  /// The next allocation of this size is likely to have the same address.
  virtual void release(std::byte* at, Memory memory) = 0;
  std::byte* allocate(std::size_t bytes) { return allocate(bytes, Memory::shareable); }
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
  /// After what is on the stream.
  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void* stream() = 0;
  virtual void synchronize() = 0;
  /// What `body` puts on the stream, so many times; as a graph, where there are graphs.
  virtual void repeat(int times, const std::function<void()>& body) = 0;
  /// How often a test launches what takes its time.
  virtual int many_launches() const = 0;
  /// Memory that nobody uses; 0 where that cannot be told.
  virtual std::size_t free_bytes() = 0;
};

/// How many there are.
int accelerators();
/// One of them, for the calling thread. Throws Error.
std::unique_ptr<Accelerator> open_accelerator(int ordinal);

}  // namespace tutti::test

// The two buffers of a rank, in the memory that the command line asks for: filled before a call,
// compared after it, guard zones included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/nccl/functions.h"
#include "bench/perf/benchmark.h"
#include "bench/perf/buffer.h"
#include "bench/perf/options.h"

namespace tutti::perf {

class RankMemory {
 public:
  /// On the host (`device` -1), or on a GPU; there `nccl` makes the buffers on which it will have
  /// windows.
  RankMemory(const PerfOptions& options, int device, const bench::NcclFunctions* nccl);

  /// The addresses of the buffers for calls on elements of `type`.
  std::byte* send(DataType type) const { return start(send_, type); }
  std::byte* receive(DataType type) const { return start(receive_, type); }
  /// All of a buffer, from its guard zone on.
  std::byte* send() const { return send_.data(); }
  std::byte* receive() const { return receive_.data(); }
  std::size_t bytes() const { return bytes_; }

  /// The images that the calls of `setup` start from.
  void paint(const Data& data, const CallSetup& setup) const;
  /// The number of elements that differ from the expected state after such a call.
  std::uint64_t count_wrong(const Data& data, const CallSetup& setup) const;

 private:
  std::byte* start(const Buffer& buffer, DataType type) const;
  void paint(const Data& data, const Image& image, std::byte* at) const;
  std::uint64_t count_wrong(const Data& data, const Image& image, const std::byte* at) const;

  int device_;
  int workers_;  // threads that fill and compare GPU memory
  std::size_t unalign_;
  std::size_t bytes_;
  Buffer send_, receive_;
};

}  // namespace tutti::perf

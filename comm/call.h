// Call: one operation of one rank, as data. The named functions (named_calls.h) fill it; a program
// may fill it itself, and run() or start() it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Relative, so that the installed headers need only <prefix>/include on the search path.
#include "../collectives/collective.h"
#include "../core/types.h"

namespace tutti {

/// One operation of one rank and its memory. The functions of Communicator fill it. It owns
/// nothing: run() and start() read its spans, and copy those that they need longer.
struct Call {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements, as NCCL counts: of a rank's block if there are blocks
  DataType type = DataType::uint8;
  ReduceOp op{};
  int root = 0;        // rooted collectives
  int peer = -1;       // send_recv: the other rank
  bool sends = false;  // send_recv: a send, from `in`; else a recv, to `out`
  // A number of the caller, such as a binding, less than 2048: calls with different labels do not
  // match. (What split() and window() exchange has those from 2048 on.)
  std::uint16_t label = 0;
  // all_reduce or reduce_scatter of float16, bfloat16 or float32 by sum, avg or
  // pre_multiplied_sum, on host memory: messages carry 8 bits for an element. For slow links; the
  // result is approximate, and of an all_reduce has the same bits on all ranks
  // (docs/low-precision.md).
  bool compressed = false;
  // Of a compressed all_reduce: `count` numbers, or none. This rank compresses some of the sums
  // (not the same on all ranks), and adds here what that leaves out of them, so many times. With
  // times = the number of ranks for avg, and 1 for sum, that is what is missing in this rank's
  // input. Each sum's error is added on one rank alone.
  float* left_out = nullptr;
  float left_out_times = 1;
  // v-variants: the elements and the start of each block (in elements; empty: packed). As MPI's.
  std::span<const std::size_t> in_counts{}, in_offsets{}, out_counts{}, out_offsets{};
  // The timeout of this call; 0: Options::timeout; max(): none. Not for GPU memory.
  std::chrono::nanoseconds timeout{0};
};

/// Moves, and is not copied. Its buffers are not its own: they stay the caller's. One thread at a
/// time.
class KeptCall {
 public:
  explicit KeptCall(const Call& call) : call_(call) {
    std::size_t total = 0;
    for (const auto* s : spans()) total += s->size();
    numbers_.reserve(total);
    for (auto* s : spans()) {
      const std::size_t first = numbers_.size();
      numbers_.insert(numbers_.end(), s->begin(), s->end());
      *s = std::span(numbers_).subspan(first);
    }
  }
  // A moved vector keeps its memory, so the spans stay right; spans of a copy would not.
  KeptCall(KeptCall&&) = default;
  KeptCall& operator=(KeptCall&&) = default;

  const Call& call() const { return call_; }

 private:
  std::array<std::span<const std::size_t>*, 4> spans() {
    return {&call_.in_counts, &call_.in_offsets, &call_.out_counts, &call_.out_offsets};
  }

  Call call_;
  std::vector<std::size_t> numbers_;
};

}  // namespace tutti

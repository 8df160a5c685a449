// The buffers of a rank's links, and what is under way from and to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/axis.h"
#include "parallel/memory_pool.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// One end of each link that this rank sends on, and of each that it receives from; of a link
/// inside of the rank both are the same. StageMessage k of a link has buffer k % buffers. All of
/// them are in one block of memory, where other ranks can read them.
class Buffers {
 public:
  /// Lays them out: there is no memory yet.
  Buffers(const Schedule& schedule, const Messages& messages, int rank,
          const std::vector<std::size_t>& bytes, Device& device)
      : messages_(messages), buffers_(schedule.buffers), pool_(MemoryPool::Reuse::no, device) {
    ends_.resize(messages.links.size());
    for (std::size_t l = 0; l < ends_.size(); ++l) {
      const StageLink& link = messages.links[l];
      if (schedule.rank_of(link.from) != rank && schedule.rank_of(link.to) != rank) continue;
      End& end = ends_[l];
      end.bytes = bytes[static_cast<std::size_t>(link.boundary())];
      const std::size_t count =
          std::min(link.messages.size(), static_cast<std::size_t>(schedule.buffers));
      // Whole cache lines, so that a buffer has none in common with another one.
      end.stride = (end.bytes + kLine - 1) / kLine * kLine;
      end.first = static_cast<std::size_t>(total_);
      end.pending.resize(count);
      total_ = std::min(total_ + end.stride * count, kMost);
    }
  }

  /// Bytes of all of them.
  std::uint64_t total() const { return total_; }
  void allocate() { memory_ = pool_.zeros(static_cast<std::size_t>(total_)); }

  std::span<std::byte> of(const StageMessage& m) {
    const End& end = ends_[static_cast<std::size_t>(m.link)];
    return {memory_.data() + end.first + slot(m) * end.stride, end.bytes};
  }
  /// What is under way from or to the message's buffer.
  Pending& pending(const StageMessage& m) {
    return ends_[static_cast<std::size_t>(m.link)].pending[slot(m)];
  }
  /// Calls f(pending) for all that is under way.
  template <typename F>
  void for_each_pending(F f) {
    for (End& end : ends_) {
      for (Pending& p : end.pending) f(p);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  // More than any memory. A link has 2^60 bytes at most, so that this is where sums stay.
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

  struct End {
    std::size_t bytes = 0, stride = 0;
    std::size_t first = 0;         // where its buffers begin
    std::vector<Pending> pending;  // by buffer
  };

  std::size_t slot(const StageMessage& m) const {
    return static_cast<std::size_t>(m.number % buffers_);
  }

  const Messages& messages_;
  int buffers_;
  std::vector<End> ends_;  // by link
  std::uint64_t total_ = 0;
  MemoryPool pool_;
  Buffer memory_;
};

}  // namespace tutti::parallel::pipeline

// The buffers of a rank's links, and what is under way from and to them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/memory.h"
#include "parallel/axis.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/schedule.h"

namespace tutti::parallel::pipeline {

/// One end of each link that this rank sends on, and of each that it receives from; of a link
/// inside of the rank both are the same. Message k of a link has buffer k % buffers.
class Buffers {
 public:
  Buffers(const Schedule& schedule, const Messages& messages, int rank,
          const std::vector<std::size_t>& bytes)
      : messages_(messages), buffers_(schedule.buffers) {
    ends_.resize(messages.links.size());
    for (std::size_t l = 0; l < ends_.size(); ++l) {
      const Link& link = messages.links[l];
      if (schedule.rank_of(link.from) != rank && schedule.rank_of(link.to) != rank) continue;
      End& end = ends_[l];
      end.bytes = bytes[static_cast<std::size_t>(link.boundary())];
      const std::size_t count =
          std::min(link.messages.size(), static_cast<std::size_t>(schedule.buffers));
      // Whole cache lines, so that a buffer has none in common with another one.
      end.stride = (end.bytes + kLine - 1) / kLine * kLine;
      end.memory.resize(end.stride * count);
      end.pending.resize(count);
      total_ += end.memory.size();
    }
  }

  std::span<std::byte> of(const Message& m) {
    End& end = ends_[static_cast<std::size_t>(m.link)];
    return std::span(end.memory).subspan(slot(m) * end.stride, end.bytes);
  }
  /// What is under way from or to the message's buffer.
  Pending& pending(const Message& m) {
    return ends_[static_cast<std::size_t>(m.link)].pending[slot(m)];
  }
  /// Calls f(pending) for all that is under way.
  template <typename F>
  void for_each_pending(F f) {
    for (End& end : ends_) {
      for (Pending& p : end.pending) f(p);
    }
  }
  std::size_t total() const { return total_; }

 private:
  static constexpr std::size_t kLine = 64;

  struct End {
    std::size_t bytes = 0, stride = 0;
    std::vector<std::byte, Allocator<std::byte>> memory;  // where other ranks can read it
    std::vector<Pending> pending;                         // by buffer
  };

  std::size_t slot(const Message& m) const { return static_cast<std::size_t>(m.number % buffers_); }

  const Messages& messages_;
  int buffers_;
  std::vector<End> ends_;  // by link
  std::size_t total_ = 0;
};

}  // namespace tutti::parallel::pipeline

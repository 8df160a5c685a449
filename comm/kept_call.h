// A Call that owns the numbers of its spans: calls of an open group, and started ones, run after
// the user's function has returned; what was prepared for a call is compared with later ones.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "communicator.h"

namespace tutti {

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

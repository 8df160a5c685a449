// What a thread knows of the others: the accesses that happened before its next one. A vector clock
// over thousands of threads. Most of them have just met at a barrier: the time of a thread is its
// block's interval between barriers, and a tick within it that counts the thread's releases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::ptx {

inline constexpr std::uint32_t kMostBlockThreads = 512;

/// When an access happened.
struct Moment {
  std::uint32_t thread = 0;  // block * kMostBlockThreads + thread of the block
  std::uint64_t time = 0;    // interval * 256 + tick

  std::uint32_t block() const { return thread / kMostBlockThreads; }
};

struct Clock {
  std::vector<std::uint32_t> complete;  // of each block: all intervals before this one
  std::vector<Moment> parts;            // beside those, of threads up to this time; by thread
  std::uint64_t seen = 0;               // writes of this number and older ones are not hidden

  bool knows(const Moment& m) const {
    const std::uint32_t b = m.block();
    if (b < complete.size() && m.time >> 8 < complete[b]) return true;
    const auto part =
        std::lower_bound(parts.begin(), parts.end(), m.thread,
                         [](const Moment& p, std::uint32_t thread) { return p.thread < thread; });
    return part != parts.end() && part->thread == m.thread && m.time <= part->time;
  }

  void add(const Moment& m) {
    const auto part =
        std::lower_bound(parts.begin(), parts.end(), m.thread,
                         [](const Moment& p, std::uint32_t thread) { return p.thread < thread; });
    if (part == parts.end() || part->thread != m.thread) {
      parts.insert(part, m);
    } else {
      part->time = std::max(part->time, m.time);
    }
  }

  void join(const Clock& other) {
    if (complete.size() < other.complete.size()) complete.resize(other.complete.size());
    for (std::size_t b = 0; b < other.complete.size(); ++b) {
      complete[b] = std::max(complete[b], other.complete[b]);
    }
    for (const Moment& m : other.parts) {
      if (!knows(m)) add(m);
    }
    seen = std::max(seen, other.seen);
    forget_complete();
  }

  void finish(std::uint32_t block, std::uint32_t interval) {
    if (complete.size() <= block) complete.resize(block + 1);
    complete[block] = std::max(complete[block], interval);
    forget_complete();
  }

 private:
  void forget_complete() {
    std::erase_if(parts, [this](const Moment& m) {
      return m.block() < complete.size() && m.time >> 8 < complete[m.block()];
    });
  }
};

}  // namespace tutti::ptx

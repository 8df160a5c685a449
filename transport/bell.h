// A bell: how whoever publishes a message, or frees a slot, wakes the rank at the other end of a
// link.
//
// A rank that sleeps says so, and whoever has something for it rings (futex). What is behind the
// bell of a rank on another host is not a sleeper but a wire, which has to be told of everything:
// that bell always counts as asleep, so ringing it takes the slow way. The fast way is one load of
// a line that seldom changes, wherever the other end is.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace tutti {

struct Bell {
  enum : std::uint32_t { kAwake = 0, kAsleep = 1, kRemote = 2 };
  std::atomic<std::uint32_t> asleep;
  std::atomic<std::uint32_t> rings;  // how often it was rung; what sleepers wait on
};

/// The bell at this end of a link to or from another host.
class RemoteBell : public Bell {
 public:
  RemoteBell() : Bell{{kRemote}, {0}} {}
  virtual ~RemoteBell() = default;
  /// Something was published or freed at this end of the link. Does not wait.
  virtual void rung() = 0;
  /// Looks whether something has come over the link, and sends on what was left. Does not wait.
  virtual void poll() = 0;
  /// Whether what was published here has left this process.
  virtual bool is_flushed() = 0;
};

/// The bell of a link to or from another host; null: the other end is here.
inline RemoteBell* remote(Bell& bell) {
  // A remote bell is one for ever, and no other becomes one.
  return bell.asleep.load(std::memory_order_relaxed) == Bell::kRemote
             ? static_cast<RemoteBell*>(&bell)
             : nullptr;
}

namespace detail {
void ring_now(Bell& bell);
/// Until one of `bells` has been rung since it had shown `seen`, at most a millisecond.
void sleep_now(std::span<Bell* const> bells, std::span<const std::uint32_t> seen);
}  // namespace detail

/// After a message was published or a slot freed.
inline void ring(Bell& bell) {
  // relaxed, without a fence: a bell that is missed costs the sleeper its time-out (1 ms).
  if (bell.asleep.load(std::memory_order_relaxed) != Bell::kAwake) detail::ring_now(bell);
}

/// More ring unheard.
inline constexpr std::size_t kMostBells = 64;

/// Sleeps until one of `bells` is rung, at most a millisecond, unless `ready` already holds.
template <class Ready>
void sleep_unless(std::span<Bell* const> bells, Ready&& ready) {
  bells = bells.first(bells.size() < kMostBells ? bells.size() : kMostBells);
  std::uint32_t seen[kMostBells];
  for (std::size_t b = 0; b < bells.size(); ++b) {
    seen[b] = bells[b]->rings.load(std::memory_order_relaxed);
    bells[b]->asleep.store(Bell::kAsleep, std::memory_order_seq_cst);
  }
  if (!ready()) detail::sleep_now(bells, {seen, bells.size()});
  for (Bell* b : bells) b->asleep.store(Bell::kAwake, std::memory_order_relaxed);
}

}  // namespace tutti

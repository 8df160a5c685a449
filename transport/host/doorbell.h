// A doorbell: how a rank that publishes a message, or frees a slot, wakes the rank at the other end
// of a link.
//
// A rank that sleeps says so, and a rank that has something for it rings (futex). A wire, and not a
// sleeper, is behind the doorbell of a rank on another host, and has to be told of everything: that
// doorbell always counts as asleep, so ringing it takes the slow way. The fast way is one load of a
// line that seldom changes, wherever the other end is.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

namespace tutti {

struct Doorbell {
  enum : std::uint32_t { kAwake = 0, kAsleep = 1, kRemote = 2 };
  std::atomic<std::uint32_t> asleep;
  std::atomic<std::uint32_t> rings;  // how often it was rung; what sleepers wait on
};

/// The doorbell at this end of a link to or from another host.
class RemoteDoorbell : public Doorbell {
 public:
  RemoteDoorbell() : Doorbell{{kRemote}, {0}} {}
  virtual ~RemoteDoorbell() = default;
  /// Something was published or freed at this end of the link. Does not wait.
  virtual void rung() = 0;
  /// Looks whether something has come over the link, and sends on what was left. Does not wait.
  virtual void poll() = 0;
  /// Whether what was published here has left this process.
  virtual bool is_flushed() = 0;
};

/// The doorbell of a link to or from another host; null: the other end is here.
inline RemoteDoorbell* remote(Doorbell& doorbell) {
  // A remote doorbell is one for ever, and no other becomes one.
  return doorbell.asleep.load(std::memory_order_relaxed) == Doorbell::kRemote
             ? static_cast<RemoteDoorbell*>(&doorbell)
             : nullptr;
}

namespace detail {
void ring_now(Doorbell& doorbell);
/// Until one of `doorbells` has been rung since it had shown `seen`, or for `most`, under a second.
void sleep_now(std::span<Doorbell* const> doorbells, std::span<const std::uint32_t> seen,
               std::chrono::nanoseconds most);
}  // namespace detail

/// After a message was published or a slot freed.
inline void ring(Doorbell& doorbell) {
  // relaxed, without a fence: a doorbell that is missed costs the sleeper its time-out.
  if (doorbell.asleep.load(std::memory_order_relaxed) != Doorbell::kAwake)
    detail::ring_now(doorbell);
}

/// More ring unheard.
inline constexpr std::size_t kMostBells = 64;

/// Sleeps until one of `doorbells` is rung, at most for `most`, unless `ready` already holds.
template <class Ready>
void sleep_unless(std::span<Doorbell* const> doorbells, Ready&& ready,
                  std::chrono::nanoseconds most = std::chrono::milliseconds(1)) {
  doorbells = doorbells.first(doorbells.size() < kMostBells ? doorbells.size() : kMostBells);
  std::uint32_t seen[kMostBells];
  for (std::size_t b = 0; b < doorbells.size(); ++b) {
    seen[b] = doorbells[b]->rings.load(std::memory_order_relaxed);
    doorbells[b]->asleep.store(Doorbell::kAsleep, std::memory_order_seq_cst);
  }
  if (!ready()) detail::sleep_now(doorbells, {seen, doorbells.size()}, most);
  for (Doorbell* b : doorbells) b->asleep.store(Doorbell::kAwake, std::memory_order_relaxed);
}

}  // namespace tutti

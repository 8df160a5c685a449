// Waiting for what other threads and processes do, where nobody wakes the thread that waits: it
// looks, pauses, and looks again, ever less often, until a deadline.
#pragma once

#include <chrono>
#include <thread>

#include "core/background.h"

namespace tutti {

using Deadline = std::chrono::steady_clock::time_point;

/// `timeout` from now; a timeout too long for the clock means the end of time.
inline Deadline deadline_after(std::chrono::nanoseconds timeout) {
  const Deadline now = std::chrono::steady_clock::now();
  return timeout > Deadline::max() - now ? Deadline::max() : now + timeout;
}

/// What a wait does once its thread must_stop().
enum class OnStop { throws, ends, goes_on };

/// Returns true once `ready()` is. Returns false at `deadline`, after a last look. Where the thread
/// must stop, throws Error(aborted), returns false, or goes on, as `on_stop` says.
template <class Ready>
bool wait_until(Deadline deadline, Ready&& ready, OnStop on_stop = OnStop::throws) {
  const auto begun = std::chrono::steady_clock::now();
  while (!ready()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (on_stop == OnStop::ends && must_stop()) return false;
    if (on_stop == OnStop::throws) throw_if_stopping();
    std::this_thread::sleep_for(next_pause(begun));
  }
  return true;
}

/// For how long a thread sleeps at most, though it will be woken, that has to look for something
/// else meanwhile: whether it was interrupted (Interruptible), for one.
inline constexpr std::chrono::milliseconds kMoment(50);

}  // namespace tutti

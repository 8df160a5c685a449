// Background threads, which serve other ranks for a while and for which no caller waits. An exiting
// process stops and joins them, so they never run while the library is taken down. A forked child
// does not have them and does not wait for them. The last function starts threads that do one thing
// together.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>

namespace tutti {

/// Runs `body` on a thread called `name` with all signals blocked. `body` gets a descriptor that
/// becomes readable when the process exits; it must then return soon (2 s). Exceptions that escape
/// `body` are logged, unless the process exits. Throws Error(system) where the thread cannot be
/// started, and Error(aborted) while the process exits.
void run_in_background(std::string_view name, std::function<void(int stop_fd)> body);

/// A thread called `name` (its first 15 characters). It blocks all signals, so the user's handlers
/// never run on it. Throws Error(system).
std::thread start_thread(std::string_view name, std::function<void()> body);

/// True on a background thread while the process exits, and on an interrupted thread
/// (Interruptible). Long waits ask this.
bool must_stop();
/// Throws Error(aborted) if so.
void throw_if_stopping();

/// While this object lives, the waits of this thread call `interrupted` now and then. Once it
/// returns true, the wait ends with an Error(aborted). For bindings to languages where Ctrl-C is an
/// exception.
class Interruptible {
 public:
  explicit Interruptible(bool (*interrupted)());
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  /// Whether this thread has one: then it may sleep in the kernel for a moment only.
  static bool any();

 private:
  bool (*const before_)();
};
/// On a background thread, the descriptor that becomes readable when the process exits; -1 on all
/// other threads.
int stop_descriptor();
/// Sleeps for `time`; throws Error(aborted) if this thread must_stop().
void pause_for(std::chrono::nanoseconds time);
/// `time`, longer where more than 64 `ranks` of a host may wait at once: their looks must not take
/// the cores from the ranks for which they wait.
template <class Duration>
constexpr Duration among(std::size_t ranks, Duration time) {
  constexpr std::size_t kCrowd = 64;
  return ranks > kCrowd ? time * static_cast<long>(ranks / kCrowd) : time;
}
/// The next pause of a wait that has `begun` then: an eighth of that time, but among(ranks, 10 ms)
/// at most.
std::chrono::nanoseconds next_pause(std::chrono::steady_clock::time_point begun,
                                    std::size_t ranks = 1);
/// Sleeps for that time as above. wait_until() (wait.h) is the whole loop.
void pause_in_wait(std::chrono::steady_clock::time_point begun, std::size_t ranks = 1);

/// Turns the exception of std::thread, for `what`, into Error(system).
[[noreturn]] void throw_no_thread(std::string_view what, const std::system_error& error);

/// Runs body(0) to body(count - 1) side by side, the first on this thread and the others on threads
/// of their own. Returns when all have returned. They may wait for each other: if one thread cannot
/// start, none of them runs, and the function throws Error(system). `body` throws nothing.
void run_side_by_side(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace tutti

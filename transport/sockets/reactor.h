// The thread that looks after this process's sockets to other hosts when nobody else does: it
// accepts and greets, hears at once which peers are gone and what has failed, and drives the wires
// of ranks that are not in a call. The process has one for all of its ranks, as soon as one of them
// has a peer on another host.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

class Reactor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// The thread calls it. It must not wait.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// A descriptor is ready for `events` (epoll's).
    virtual void on_events(int fd, std::uint32_t events) = 0;
    /// When the time has come for which it keeps the reactor awake, or up to 10 ms later. When it
    /// is to be called again; none: it need not be.
    virtual std::optional<Time> on_tick(Time) { return std::nullopt; }
    /// The process exits: whether nothing is left to be sent.
    virtual bool on_exit() { return true; }
  };

  /// This process's; its thread runs. Throws Error where the thread cannot be started.
  static Reactor& instance();

  /// Tells `handler` of `events` of `fd` from now on; 0: of none yet. It must outlive that.
  void watch(int fd, std::uint32_t events, Handler& handler);
  void change(int fd, std::uint32_t events);
  /// When this returns, the descriptor's handler is not called any more, except for a call that
  /// this thread is in.
  void unwatch(int fd);
  /// unwatch() for all descriptors of `handler`, and its ticks.
  void forget(Handler& handler);
  /// Has on_tick() called, `when` at the latest, and then as it says itself.
  void keep_awake(Handler& handler, Time when = Time{});

 private:
  Reactor();
  static void hold_across_forks();
  /// In a child of fork(): its copies of the sockets must not keep connections open that the parent
  /// closes, or that the peers wait to see closed.
  void let_go_of_sockets();
  void run(int stop_fd);
  void wake();
  void tick(Time now);
  /// With mutex_ held: `fd` is not that handler's any more.
  void release(Handler* handler, int fd);
  template <class Call>
  void call(Handler& handler, Call&& call);

  std::uint32_t generation_;
  pid_t process_ = getpid();
  FileDescriptor epoll_, doorbell_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<int, Handler*> watched_;
  std::unordered_map<Handler*, std::vector<int>> descriptors_;  // of each, those of watched_
  std::unordered_map<Handler*, Time> awake_;                    // when they are to be called
  Time earliest_ = Time::max();                                 // of awake_; none is earlier
  Handler* called_ = nullptr;                                   // is being called now
  std::thread::id thread_;
};

}  // namespace tutti

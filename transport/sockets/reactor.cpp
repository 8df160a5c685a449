#include "transport/sockets/reactor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 10ms;
// Of a process that exits, for what it has sent last.
constexpr auto kGrace = 1500ms;

struct Slot {
  std::mutex mutex;
  Reactor* reactor = nullptr;  // never destroyed: its thread runs to the end
  std::uint32_t generation = 0;
};

Slot& slot() {
  static auto* const instance = new Slot;
  return *instance;
}

}  // namespace

void Reactor::hold_across_forks() {
  hold_across_fork(
      [] {
        slot().mutex.lock();
        if (slot().reactor != nullptr) slot().reactor->mutex_.lock();
      },
      [] {
        Reactor* const reactor = slot().reactor;
        if (reactor != nullptr) {
          if (reactor->process_ != getpid()) reactor->let_go_of_sockets();
          reactor->mutex_.unlock();
        }
        slot().mutex.unlock();
      });
}

void Reactor::let_go_of_sockets() {
  // The numbers stay in use, so that a handler that closes them later closes nothing else.
  const int nothing = above_standard(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (nothing < 0) return;
  for (const auto& [fd, handler] : watched_) ::dup3(nothing, fd, O_CLOEXEC);
  ::close(nothing);
}

Reactor& Reactor::instance() {
  [[maybe_unused]] static const bool held = (hold_across_forks(), true);
  Slot& s = slot();
  const std::lock_guard lock(s.mutex);
  // A child of fork() has neither the thread nor any of the sockets' ranks.
  if (s.reactor == nullptr || s.generation != process_generation()) {
    std::unique_ptr<Reactor> made(new Reactor);
    run_in_background("tutti-reactor", [r = made.get()](int stop_fd) { r->run(stop_fd); });
    s.generation = process_generation();
    s.reactor = made.release();
  }
  return *s.reactor;
}

Reactor::Reactor()
    : generation_(process_generation()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = doorbell_.fd();
  if (!epoll_ || !doorbell_ || epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, doorbell_.fd(), &event) != 0) {
    throw_system_error("making the epoll set of the network's thread");
  }
}

void Reactor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.fd(), &one, sizeof one);
}

void Reactor::watch(int fd, std::uint32_t events, Handler& handler) {
  const std::lock_guard lock(mutex_);
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw_system_error("watching a socket to another host");
  }
  try {
    const auto [entry, fresh] = watched_.try_emplace(fd, &handler);
    if (!fresh) {
      // Its number was another socket's, which was closed without a word.
      release(entry->second, fd);
      entry->second = &handler;
    }
    descriptors_[&handler].push_back(fd);
  } catch (...) {  // else nobody would take its events
    watched_.erase(fd);
    epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
    throw;
  }
}

void Reactor::release(Handler* handler, int fd) {
  const auto its = descriptors_.find(handler);
  std::erase(its->second, fd);
  if (its->second.empty()) descriptors_.erase(its);
}

void Reactor::change(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &event);
}

void Reactor::unwatch(int fd) {
  if (generation_ != process_generation()) return;
  std::unique_lock lock(mutex_);
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  Handler* const handler = found->second;
  watched_.erase(found);
  release(handler, fd);
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
  if (std::this_thread::get_id() == thread_) return;
  done_.wait(lock, [&] { return called_ != handler; });
}

void Reactor::forget(Handler& handler) {
  if (generation_ != process_generation()) return;
  std::unique_lock lock(mutex_);
  if (const auto its = descriptors_.extract(&handler)) {
    for (const int fd : its.mapped()) {
      watched_.erase(fd);
      epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr);
    }
  }
  awake_.erase(&handler);
  if (std::this_thread::get_id() == thread_) return;
  done_.wait(lock, [&] { return called_ != &handler; });
  awake_.erase(&handler);  // where it has asked for it in that last call
}

void Reactor::keep_awake(Handler& handler, Time when) {
  bool sooner = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [entry, fresh] = awake_.try_emplace(&handler, when);
    if (!fresh) entry->second = std::min(entry->second, when);
    sooner = when < earliest_;
    if (sooner) earliest_ = when;
    sooner = sooner && std::this_thread::get_id() != thread_;
  }
  if (sooner) wake();
}

/// With mutex_ held, which it lets go of meanwhile.
template <class Call>
void Reactor::call(Handler& handler, Call&& call) {
  called_ = &handler;
  mutex_.unlock();
  try {
    call(handler);
  } catch (const std::exception& e) {
    if (!must_stop()) log().error("the network's thread: {}", e.what());
  }
  mutex_.lock();
  called_ = nullptr;
  done_.notify_all();
}

void Reactor::tick(Time now) {
  std::vector<Handler*> due;
  for (const auto& [handler, when] : awake_) {
    if (when <= now) due.push_back(handler);
  }
  for (Handler* const handler : due) {
    const auto before = awake_.find(handler);
    if (before == awake_.end()) continue;
    before->second = Time::max();
    std::optional<Time> again = now;
    call(*handler, [&](Handler& h) { again = h.on_tick(now); });
    // Another thread may have asked for it again meanwhile, or forgotten it.
    const auto after = awake_.find(handler);
    if (after == awake_.end()) continue;
    if (again) after->second = std::min(after->second, *again);
    if (after->second == Time::max()) awake_.erase(after);
  }
  earliest_ = Time::max();
  for (const auto& [handler, when] : awake_) earliest_ = std::min(earliest_, when);
}

void Reactor::run(int stop_fd) {
  std::unique_lock lock(mutex_);
  thread_ = std::this_thread::get_id();
  epoll_event stop{};
  stop.events = EPOLLIN;
  stop.data.fd = stop_fd;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, stop_fd, &stop);
  std::array<epoll_event, 64> events;
  auto next_tick = Clock::now();
  std::optional<Time> end;
  for (;;) {
    const auto wake_at = end ? next_tick : std::max(next_tick, earliest_);
    const int wait = wake_at == Time::max() ? -1 : milliseconds_until(wake_at);
    lock.unlock();
    const int ready = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), wait);
    // The program has closed it. The ticks go on, so that the ranks end (Network::is_closed()).
    if (ready < 0 && errno != EINTR) std::this_thread::sleep_for(kTick);
    lock.lock();
    for (int i = 0; i < ready; ++i) {
      const epoll_event& e = events[static_cast<std::size_t>(i)];
      if (e.data.fd == doorbell_.fd()) {
        std::uint64_t rings = 0;
        [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
      } else if (e.data.fd == stop_fd) {
        epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, stop_fd, nullptr);
        end = Clock::now() + kGrace;
      } else if (const auto found = watched_.find(e.data.fd); found != watched_.end()) {
        call(*found->second, [&](Handler& h) { h.on_events(e.data.fd, e.events); });
      }
    }
    const auto now = Clock::now();
    if (now >= next_tick && now >= earliest_) {
      next_tick = now + kTick;
      try {
        tick(now);
      } catch (const std::bad_alloc&) {  // there may be memory for it in the next one
      }
    }
    if (!end) continue;
    bool settled = true;
    std::vector<Handler*> handlers;
    for (const auto& [handler, fds] : descriptors_) handlers.push_back(handler);
    for (Handler* const handler : handlers) {
      call(*handler, [&](Handler& h) { settled = h.on_exit() && settled; });
    }
    if (settled || now >= *end) return;
  }
}

}  // namespace tutti

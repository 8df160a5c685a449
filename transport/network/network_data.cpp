// See network.h: which thread moves the data, and what wakes a rank that sleeps on them.
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "core/error.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 10ms;
constexpr auto kShortSleep = 500us;

}  // namespace

EndpointMaker& Network::maker(WireKind kind) {
  if (const auto known = makers_.find(kind); known != makers_.end()) return *known->second;
  const auto made = wires_.made.find(kind);
  auto maker = made != wires_.made.end() ? made->second : make_endpoints(kind);
  const auto keep = [&]() -> EndpointMaker& {
    return *makers_.emplace(kind, std::move(maker)).first->second;
  };
  if (maker->descriptor() < 0) return keep();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kMakers + static_cast<std::uint64_t>(kind);
  if (epoll_ctl(data_.fd(), EPOLL_CTL_ADD, maker->descriptor(), &event) != 0) {
    throw_system_error("watching a descriptor of a network");
  }
  // For children of fork().
  reactor_->watch(maker->descriptor(), 0, *this);
  return keep();
}

void Network::serve_data() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(data_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& e = events[static_cast<std::size_t>(i)];
    if (e.data.u64 == kDoorbell) {
      quiet_doorbell();
      continue;
    }
    if (e.data.u64 >= kMakers) {
      for (const auto& r : all_remote()) {
        if (!r->wire().abilities().level_triggered) r->wire().drive();
      }
      // What comes while this is done is served the next time.
      arm_makers();
      continue;
    }
    std::shared_ptr<RemoteRank> r;
    {
      const std::lock_guard lock(mutex_);
      const auto found = ranks_.find(static_cast<int>(e.data.u64 / RemoteRank::kDataSockets));
      if (found != ranks_.end()) r = found->second;
    }
    if (r != nullptr) r->on_data(e.data.u64 % RemoteRank::kDataSockets, e.events);
  }
}

void Network::poll() {
  polled_.store(true, std::memory_order_seq_cst);
  on_polled();
  serve_data();
  for (const auto& r : all_remote()) {
    Wire& wire = r->wire();
    if (!wire.abilities().level_triggered) {
      wire.poll_and_tell();
    } else if (wire.has_work()) {
      wire.drive();
    }
  }
}

void Network::sleep(std::chrono::nanoseconds most, const std::function<bool()>& ready) {
  {
    const std::lock_guard lock(sleep_mutex_);
    // The first sleeper hears every ring; another one may miss it.
    if (sleepers_.fetch_add(1, std::memory_order_seq_cst) > 0) {
      most = std::min<std::chrono::nanoseconds>(most, kShortSleep);
    }
  }
  on_polled();
  const auto ranks = all_remote();
  bool may = true;
  for (const auto& r : ranks) {
    may = may && r->prepare_to_sleep();
    if (!r->wire().abilities().wakes) most = std::min<std::chrono::nanoseconds>(most, kShortSleep);
  }
  may = may && arm_makers();
  // After sleepers_ was raised: pairs with wake().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (may && !ready()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
    const timespec time{seconds.count(), (most - seconds).count()};
    pollfd set{data_.fd(), POLLIN, 0};
    ppoll(&set, 1, &time, nullptr);
  }
  for (const auto& r : ranks) r->after_sleep();
  end_sleep();
  serve_data();
}

void Network::end_sleep() {
  polled_.store(true, std::memory_order_seq_cst);
  {
    const std::lock_guard lock(sleep_mutex_);
    if (sleepers_.load(std::memory_order_relaxed) == 1) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  // The reactor listens next, if this thread does not look again.
  if (!ticking_.exchange(true, std::memory_order_seq_cst)) {
    reactor_->keep_awake(*this, Clock::now() + kTick);
  }
}

void Network::wake() {
  // After what there is for them: pairs with sleep().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.fd(), &one, sizeof one);
}

void Network::quiet_doorbell() {
  const std::lock_guard lock(sleep_mutex_);
  if (sleepers_.load(std::memory_order_relaxed) > 0) return;
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t heard = ::read(doorbell_.fd(), &rings, sizeof rings);
}

void Network::on_connected() {
  if (!ticking_.exchange(true, std::memory_order_seq_cst)) reactor_->keep_awake(*this);
}

void Network::on_polled() {
  if (!listening_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(listening_mutex_);
    if (!listening_.exchange(false)) return;
    reactor_->change(data_.fd(), 0);
  }
  ticking_.store(true, std::memory_order_seq_cst);
  reactor_->keep_awake(*this, Clock::now() + kTick);
}

bool Network::arm_makers() {
  bool armed = true;
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, maker] : makers_) armed = maker->arm() && armed;
  return armed;
}

bool Network::is_closed() const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kDoorbell;
  return epoll_ctl(data_.fd(), EPOLL_CTL_MOD, doorbell_.fd(), &event) != 0;
}

void Network::set_listening() {
  const std::lock_guard lock(listening_mutex_);
  for (const auto& r : all_remote()) r->wire().set_listening(true);
  listening_.store(true);
  reactor_->change(data_.fd(), EPOLLIN);
}

bool Network::leave_to_reactor() {
  const auto has_work = [](const auto& r) { return r->wire().has_work(); };
  if (!hears_all() || std::ranges::any_of(all_remote(), has_work)) return false;
  if (!listening_.load()) set_listening();
  return true;
}

std::optional<Reactor::Time> Network::watch_data(Reactor::Time now) {
  // In this order: a thread that wakes after the load of sleepers_ starts the ticks again
  // (end_sleep()).
  ticking_.store(false, std::memory_order_seq_cst);
  const bool sleeps = sleepers_.load(std::memory_order_seq_cst) > 0;
  bool polled = polled_.exchange(false, std::memory_order_seq_cst);
  bool busy = false;
  const auto ranks = all_remote();
  for (const auto& r : ranks) {
    if (!r->is_up()) continue;
    Wire& wire = r->wire();
    polled = wire.was_polled() || polled;
    if (!wire.abilities().level_triggered) {
      wire.drive();
    } else if (wire.has_work()) {
      wire.send_rest();
    }
    busy = busy || wire.has_work() || !wire.abilities().wakes;
  }
  if (!polled && !sleeps) {
    if (!listening_.load()) set_listening();
    for (const auto& r : ranks) {
      if (r->is_up()) busy = !r->wire().arm() || busy;
    }
    busy = !arm_makers() || busy;
  }
  if (!busy && (sleeps || !polled)) return std::nullopt;
  ticking_.store(true, std::memory_order_seq_cst);
  return now + kTick;
}

}  // namespace tutti

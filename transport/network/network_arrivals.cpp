// See network.h: processes that connect to this rank, until each is known to be one of its peers.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "core/log.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kHelloPatience = 5s;
constexpr auto kLookAtUnnamed = 500ms;  // while there is an unnamed peer
constexpr std::size_t kMostUnnamed = 256;

}  // namespace

void Network::on_events(int fd, std::uint32_t) {
  if (fd == accept_set_.fd()) return serve();
  if (listening_.load()) serve_data();
}

void Network::serve() {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(accept_set_.fd(), events.data(), static_cast<int>(events.size()), 0);
  const auto now = Clock::now();
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
    if (who < WaitingRoom::kPlaces) {
      auto admitted = waiting_room_->read(who, now);
      if (!admitted) continue;
      if (unnamed_.size() >= kMostUnnamed) unnamed_.erase(unnamed_.begin());
      const std::uint64_t number = kFirstUnnamed + next_unnamed_++;
      auto peer = std::make_unique<UnnamedPeer>();
      peer->socket = std::move(admitted->socket);
      peer->session = admitted->session;
      peer->since = now;
      watch(accept_set_, EPOLL_CTL_MOD, peer->socket, number, EPOLLIN);
      unnamed_[number] = std::move(peer);
    } else if (who >= kFirstUnnamed) {
      const auto found = unnamed_.find(who);
      if (found != unnamed_.end() && !read_hello(*found->second)) unnamed_.erase(found);
    }
  }
  bool accepted = true;
  of_all_listeners([&](const FileDescriptor& l) {
    accepted = waiting_room_->accept(l, accept_set_, now) && accepted;
  });
  if (accepted != accepting_) {
    accepting_ = accepted;
    of_all_listeners([&](const FileDescriptor& l) {
      watch(accept_set_, EPOLL_CTL_MOD, l, kListener, accepting_ ? EPOLLIN : 0U);
    });
  }
  unnamed_due_ = std::min(unnamed_due_, accepting_ ? now + kLookAtUnnamed : now);
  reactor_->keep_awake(*this, unnamed_due_);
}

std::optional<Reactor::Time> Network::on_tick(Reactor::Time now) {
  const auto unnamed = expire_unnamed(now), data = watch_data(now);
  return unnamed && data ? std::min(*unnamed, *data) : unnamed ? unnamed : data;
}

std::optional<Reactor::Time> Network::expire_unnamed(Reactor::Time now) {
  if (unnamed_due_ == Reactor::Time::max()) return std::nullopt;
  if (now < unnamed_due_ && !has_met_.load()) return unnamed_due_;
  waiting_room_->expire(now);
  const bool has_met = has_met_.exchange(false);
  std::erase_if(unnamed_, [&](const auto& g) {
    return now - g.second->since > kHelloPatience ||
           (has_met && g.second->is_early() && introduce(*g.second));
  });
  if (!accepting_) serve();
  const bool empty = unnamed_.empty() && waiting_room_->next_wake(now) == WaitingRoom::Time::max();
  unnamed_due_ = !accepting_ ? now : empty ? Reactor::Time::max() : now + kLookAtUnnamed;
  if (accepting_ && empty) return std::nullopt;
  return unnamed_due_;
}

bool Network::read_hello(UnnamedPeer& peer) {
  switch (read_more(peer.socket, protocol::writable_bytes_of(peer.said), peer.got)) {
    case ReadResult::more:
      return true;
    case ReadResult::closed:
      return false;
    case ReadResult::whole:
      break;
  }
  const StreamHello& hello = peer.said.hello;
  if (!peer.said.is_genuine(peer.session) || hello.verdict != StreamHello::asks ||
      hello.to != identity_ || hello.from == identity_ ||
      hello.stream >= RemoteRank::kStreams + RemoteRank::kMostStripes || hello.connection == 0) {
    log().warn("network: closed a connection that knows this rank's key, but says nonsense");
    return false;
  }
  epoll_ctl(accept_set_.fd(), EPOLL_CTL_DEL, peer.socket.fd(), nullptr);
  return !introduce(peer);
}

bool Network::introduce(UnnamedPeer& peer) {
  const StreamHello& hello = peer.said.hello;
  std::shared_ptr<RemoteRank> rank;
  {
    const std::lock_guard lock(mutex_);
    const int known = number_of(hello.from);
    if (known < 0) return false;
    rank = find_or_make(known);
  }
  if (rank != nullptr) rank->accept(std::move(peer.socket), hello, peer.session);
  return true;
}

}  // namespace tutti

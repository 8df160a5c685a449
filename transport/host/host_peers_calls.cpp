// How a rank calls another process of its host, and takes in its callers.
//
// A call is a connection to the other one's listener and one packet behind it, the Hello. The
// listening process need not do anything for that, so the caller does not wait, and sends on at
// once. The MAC of the Hello is keyed with the secret of the meeting, and names the caller and the
// listener. The name of a listener is random and used for one meeting. Only the listener can read
// the packet, so nobody can repeat it there, and elsewhere it is worth nothing. The kernel tells
// each side the user of the other.
//
// A process that connects and says nothing holds one of kPlaces places for a while.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "transport/host/host_peers.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPlaces = 256;
constexpr auto kPatience = 5s;       // for a caller that says nothing
constexpr auto kUndisturbed = 20ms;  // it has this long even when its place is wanted
// What epoll says of listeners; else the number of a peer.
constexpr std::uint64_t kCalls = std::uint64_t{1} << 40;

/// A process may give up privileges after ranks have met. Its listener keeps the user that it was
/// made by, and its calls have the new one; the others do the same, if not at the same time.
bool may_be_a_rank(std::int64_t user, const HostPeerAddress& own) {
  return user == std::int64_t{own.user} || user == std::int64_t{own_user()};
}

protocol::Bytes32 hello_mac(const protocol::Bytes32& secret,
                            const std::array<std::uint64_t, 2>& listener, std::uint64_t caller,
                            std::uint64_t number) {
  return protocol::hash(
      secret, "host peer",
      {protocol::bytes_of(listener), protocol::bytes_of(caller), protocol::bytes_of(number)});
}

}  // namespace

HostPeers::Exchange& HostPeers::exchange_with(Peer& peer) {
  if (!peer.exchange) peer.exchange = std::make_unique<Exchange>();
  return *peer.exchange;
}

void HostPeers::hang_up(Peer& peer) {
  if (!peer.exchange) return;
  // Also where a child by fork() keeps them open, for which they would be news for ever.
  Exchange& exchange = *peer.exchange;
  if (exchange.in) epoll_ctl(incoming_.fd(), EPOLL_CTL_DEL, exchange.in.fd(), nullptr);
  for (const FileDescriptor* const socket : {&exchange.in, &exchange.out}) {
    if (*socket) ::shutdown(socket->fd(), SHUT_RDWR);
  }
  peer.exchange.reset();
}

void HostPeers::tell_again(Peer& peer) {
  Exchange& exchange = *peer.exchange;
  if (exchange.out) ::shutdown(exchange.out.fd(), SHUT_RDWR);
  exchange.out.reset();
  exchange.out_ended = false;
  std::erase_if(exchange.unsent,
                [](const Unsent& u) { return u.message.type != Message::segment; });
  for (const auto& [id, window] : exchange.told) {
    exchange.unsent.push_back({{Message::window, id, 0, window.bytes}, window.fd, {}});
  }
  if (!exchange.unsent.empty()) behind_.insert(&peer);
}

// --- Who is called -------------------------------------------------------------------------------

bool HostPeers::call(Peer& peer) {
  Exchange& exchange = exchange_with(peer);
  const Seat& seat = peer.now;
  if (!seat.meeting) return false;
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) {
    throw_system_error(fmt::format("rank {}: no socket to pid {}", number_, peer.who->pid));
  }
  const SocketAddress name = socket_address(seat.socket);
  if (::connect(socket.fd(), name.get(), name.length) != 0 ||
      !may_be_a_rank(peer_user(socket), address_)) {
    exchange.out_ended = peer.is_gone();
    return false;
  }
  const std::uint64_t number = ++calls_;
  const Hello hello{address_.identity, number,
                    hello_mac(seat.meeting->secret, seat.socket, address_.identity, number)};
  if (::send(socket.fd(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return false;
  exchange.out = std::move(socket);
  exchange.called = seat.socket;
  return true;
}

// --- Who calls -----------------------------------------------------------------------------------

void HostPeers::accept_callers(const std::shared_ptr<Meeting>& meeting) {
  while (meeting->listener) {
    if (callers_.size() >= kPlaces) {
      const auto silent = std::ranges::find_if(callers_, [](const Caller& c) { return !c.hello; });
      if (silent == callers_.end() || Clock::now() - silent->since < kUndisturbed) return;
      callers_.erase(silent);
    }
    FileDescriptor socket(
        ::accept4(meeting->listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    lacks_descriptors_ = !socket && lacks_descriptors(errno);
    if (!socket) return;
    if (const std::int64_t user = peer_user(socket); !may_be_a_rank(user, address_)) {
      refused_user_ = user;
      continue;
    }
    Caller caller{std::move(socket), meeting, Clock::now(), {}};
    if (!admit(caller)) callers_.push_back(std::move(caller));
  }
}

bool HostPeers::admit(Caller& caller) {
  if (!caller.hello) {
    Hello hello;
    const ssize_t got = ::recv(caller.socket.fd(), &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got != sizeof hello) return true;
    caller.hello = hello;
  }
  if (caller.meeting->place < 0) return false;  // its ranks have come together, but not here
  const Hello& hello = *caller.hello;
  const Meeting& meeting = *caller.meeting;
  if (!protocol::equal(hello.mac,
                       hello_mac(meeting.secret, meeting.name, hello.identity, hello.number))) {
    return true;
  }
  const auto found = peers_.find(number_of(hello.identity));
  if (found == peers_.end()) return false;
  Peer& peer = found->second;
  Exchange& exchange = exchange_with(peer);
  // Listeners are asked in any order. A call that the caller has given up comes too late.
  if (hello.number <= exchange.in_number) return true;
  exchange.in_number = hello.number;
  if (exchange.in) {  // what it has said over an earlier one comes first
    take_all(peer);
    if (exchange.in) epoll_ctl(incoming_.fd(), EPOLL_CTL_DEL, exchange.in.fd(), nullptr);
  }
  exchange.in = std::move(caller.socket);
  exchange.in_ended = false;
  exchange.windows.clear();  // it tells of those that there still are
  watch(incoming_, EPOLL_CTL_ADD, exchange.in, static_cast<std::uint64_t>(found->first), EPOLLIN);
  take_all(peer);
  return true;
}

bool HostPeers::close_listener(const std::shared_ptr<Meeting>& meeting) {
  accept_callers(meeting);
  if (lacks_descriptors_) return false;
  meeting->listener.reset();
  std::erase_if(callers_, [&](Caller& c) {
    if (c.meeting != meeting) return false;
    admit(c);  // it may have become known since it called
    return true;
  });
  return true;
}

void HostPeers::listen_for(const Meeting& meeting) {
  if (!incoming_) incoming_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!incoming_) throw_system_error("making an epoll set for the sockets of this host");
  watch(incoming_, EPOLL_CTL_ADD, meeting.listener, kCalls, EPOLLIN);
}

void HostPeers::serve() {
  lacks_descriptors_ = false;
  if (!incoming_) return;
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(incoming_.fd(), events.data(), static_cast<int>(events.size()), 0);
  bool calls = false;
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t what = events[static_cast<std::size_t>(i)].data.u64;
    calls = calls || what == kCalls;
    const auto peer = peers_.find(static_cast<int>(what));
    if (what != kCalls && peer != peers_.end()) take_all(peer->second);
  }
  if (!callers_.empty()) {
    const auto now = Clock::now();
    std::erase_if(callers_,
                  [&](Caller& c) { return admit(c) || (!c.hello && now - c.since > kPatience); });
  }
  if (!calls) return;
  for (const auto& meeting : meetings_) accept_callers(meeting);
}

}  // namespace tutti

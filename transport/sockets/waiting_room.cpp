// See waiting_room.h.
#include "transport/sockets/waiting_room.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kProofPatience = 5s;
constexpr auto kUndisturbed = 20ms;  // a peer has this long even when all places are wanted
constexpr auto kAcceptPause = 20ms;  // after the system refused a descriptor
constexpr auto kLogPause = 1s;       // unauthenticated peers must not fill a log

bool is_readable(const FileDescriptor& listener) {
  pollfd entry{listener.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

void watch(const FileDescriptor& epoll, int operation, const FileDescriptor& socket,
           std::uint64_t number, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (::epoll_ctl(epoll.fd(), operation, socket.fd(), &event) != 0) {
    throw_system_error("epoll_ctl");
  }
}

bool WaitingRoom::accept(const FileDescriptor& listener, const FileDescriptor& epoll, Time now) {
  if (now < accept_again_) return false;
  in_trouble_ = false;
  while (Place* place = free_place(now)) {
    FileDescriptor socket = accept_from(listener);
    if (!socket) {
      const int error = errno;
      if (error == EAGAIN) return true;
      if (!lacks_descriptors(error) && error != ENOBUFS && error != ENOMEM) {
        continue;  // that connection was gone already
      }
      // The system refuses it also where nobody waits.
      if (!is_readable(listener)) return true;
      in_trouble_ = true;
      trouble_ = fmt::format("pid {} could not accept some for a while: {}{}", ::getpid(),
                             std::generic_category().message(error),
                             lacks_descriptors(error) ? "; " + out_of_descriptors() : "");
      if (now - last_log_ >= kLogPause) {
        log().warn("{}: {}; trying again", name_, trouble_);
        last_log_ = now;
      }
      accept_again_ = now + kAcceptPause;
      return false;
    }
    if (place->socket) drop(*place, "its place was wanted", now);
    place->socket = std::move(socket);
    place->since = now;
    place->received = 0;
    protocol::Greeting greeting;
    protocol::fill_random(greeting.nonce);
    place->nonce = greeting.nonce;
    // A fresh socket has room for 48 bytes: this does not wait.
    if (write_exactly(place->socket, protocol::bytes_of(greeting), now) != IoResult::done) {
      drop(*place, "it did not take the greeting", now);
      continue;
    }
    watch(epoll, EPOLL_CTL_ADD, place->socket, static_cast<std::uint64_t>(place - places_.data()),
          EPOLLIN);
  }
  return false;
}

/// An empty place, or the one held longest; none while everybody is still undisturbed.
WaitingRoom::Place* WaitingRoom::free_place(Time now) {
  Place* oldest = &places_.front();
  for (Place& place : places_) {
    if (!place.socket) return &place;
    if (place.since < oldest->since) oldest = &place;
  }
  if (now - oldest->since >= kUndisturbed) return oldest;
  accept_again_ = oldest->since + kUndisturbed;
  return nullptr;
}

void WaitingRoom::drop(Place& place, std::string_view why, Time now) {
  place.socket.reset();  // leaves the epoll set by itself
  ++dropped_;
  if (now - last_log_ < kLogPause) return;
  log().debug("{}: closed a connection without a proof: {} ({} so far)", name_, why, dropped_);
  last_log_ = now;
}

std::optional<WaitingRoom::Admitted> WaitingRoom::read(std::size_t index, Time now) {
  Place& place = places_[index];
  if (!place.socket) return std::nullopt;  // closed earlier in this batch of events
  const auto rest = protocol::writable_bytes_of(place.proof).subspan(place.received);
  const ssize_t got = ::recv(place.socket.fd(), rest.data(), rest.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) {
    drop(place, "it left", now);
    return std::nullopt;
  }
  place.received += static_cast<std::size_t>(got);
  if (place.received < sizeof place.proof) return std::nullopt;

  const protocol::Session session(secret_, place.nonce, place.proof.nonce);
  if (!protocol::equal(session.connector_proof(), place.proof.mac)) {
    drop(place, "wrong proof", now);
    return std::nullopt;
  }
  if (write_exactly(place.socket, session.acceptor_proof(), now) != IoResult::done) {
    drop(place, "it left", now);
    return std::nullopt;
  }
  return Admitted{std::move(place.socket), session};
}

void WaitingRoom::expire(Time now) {
  for (Place& place : places_) {
    if (place.socket && now - place.since >= kProofPatience) drop(place, "it was silent", now);
  }
}

void WaitingRoom::clear() {
  for (Place& place : places_) place.socket.reset();
}

WaitingRoom::Time WaitingRoom::next_wake(Time now) const {
  Time wake = accept_again_ > now ? accept_again_ : Time::max();
  for (const Place& place : places_) {
    if (place.socket) wake = std::min(wake, place.since + kProofPatience);
  }
  return wake;
}

}  // namespace tutti

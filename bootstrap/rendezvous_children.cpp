// See rendezvous_children.h.
#include "bootstrap/rendezvous_children.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <utility>

#include "bootstrap/rendezvous_tree.h"
#include "core/error.h"
#include "transport/sockets/rank_listener.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 5s;  // for a child to name itself
// What epoll says: the number of a place in the waiting room, or one of these.
constexpr std::uint64_t kArrivals = WaitingRoom::kPlaces, kFirstChild = kArrivals + 1;

}  // namespace

RendezvousChildren::RendezvousChildren(int rank, int size, const protocol::Bytes32& secret,
                                       const FileDescriptor& server)
    : rank_(rank),
      size_(size),
      listener_(listen_for_ranks(with_port(bound_address(server), 0))),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      waiting_room_(fmt::format("rendezvous: rank {}", rank), secret),
      next_child_(kFirstChild) {
  if (!listener_ || !epoll_) {
    throw_system_error(
        fmt::format("rendezvous: rank {} of {} cannot listen for other ranks{} (see `ulimit -n`)",
                    rank, size, at_which_ports()));
  }
  endpoint_ = protocol::endpoint_of(bound_address(listener_));
  watch(epoll_, EPOLL_CTL_ADD, listener_, kArrivals, EPOLLIN);
}

RendezvousChildren::Time RendezvousChildren::next_wake(Time now) const {
  const bool silent = std::any_of(children_.begin(), children_.end(),
                                  [](const auto& child) { return child.second.said.rank < 0; });
  return std::min(waiting_room_.next_wake(now), silent ? now + 1s : Time::max());
}

void RendezvousChildren::serve(Time now) {
  std::array<epoll_event, 64> events;
  const int ready = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
    if (who < WaitingRoom::kPlaces) {
      read_proof(who, now);
    } else if (who >= kFirstChild) {
      serve_child(who);
    }
  }
  waiting_room_.expire(now);
  std::erase_if(children_, [&](const auto& child) {
    return child.second.said.rank < 0 && now - child.second.since > kPatience;
  });
  accept(now);
}

void RendezvousChildren::accept(Time now) {
  const bool room = waiting_room_.accept(listener_, epoll_, now);
  // With no room the listener would wake its rank all the time.
  if (room != accepting_) {
    watch(epoll_, EPOLL_CTL_MOD, listener_, kArrivals, room ? EPOLLIN : 0U);
  }
  accepting_ = room;
}

void RendezvousChildren::read_proof(std::size_t place, Time now) {
  auto admitted = waiting_room_.read(place, now);
  if (!admitted) return;
  const std::uint64_t who = next_child_++;
  Child child;
  child.socket = std::move(admitted->socket);
  child.session = admitted->session;
  child.since = now;
  watch(epoll_, EPOLL_CTL_MOD, child.socket, who, EPOLLIN);
  children_.emplace(who, std::move(child));
}

void RendezvousChildren::serve_child(std::uint64_t who) {
  const auto found = children_.find(who);
  if (found == children_.end()) return;
  Child& child = found->second;
  const bool stays = child.said.rank < 0 ? hear(who, child) : feed(who, child);
  if (!stays) children_.erase(found);
}

bool RendezvousChildren::hear(std::uint64_t who, Child& child) {
  const protocol::FrameResult result = child.reader.read(child.socket, child.session);
  if (result == protocol::FrameResult::more) return true;
  if (result != protocol::FrameResult::whole || child.reader.type() != protocol::FrameType::child) {
    return false;
  }
  const auto said = child.reader.payload_as<protocol::Child>();
  if (!said || said->rank < tree::first_child(rank_, size_) ||
      said->rank >= tree::end_child(rank_, size_)) {
    return false;
  }
  // It connects again only where it has lost the connection that it had.
  std::erase_if(children_, [&](const auto& other) { return other.second.said.rank == said->rank; });
  child.said = *said;
  // A child says no more. It hears the rest when there is something to hear.
  watch(epoll_, EPOLL_CTL_MOD, child.socket, who, 0);
  return !roster_ || feed(who, child);
}

void RendezvousChildren::give(protocol::Buffer roster, const protocol::Bytes32& nonce) {
  roster_ = std::move(roster);
  nonce_ = nonce;
  for (auto child = children_.begin(); child != children_.end();) {
    const bool stays = child->second.said.rank < 0 || feed(child->first, child->second);
    child = stays ? std::next(child) : children_.erase(child);
  }
}

bool RendezvousChildren::feed(std::uint64_t who, Child& child) {
  if (!roster_ || child.said.nonce != nonce_) return false;  // it hung up, or is of another job
  if (!child.fed) child.outbox.add(roster_);
  child.fed = true;
  if (!child.outbox.send(child.socket) || child.outbox.empty()) return false;
  watch(epoll_, EPOLL_CTL_MOD, child.socket, who, EPOLLOUT);
  return true;
}

}  // namespace tutti

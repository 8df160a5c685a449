// See rendezvous_members.h.
#include "bootstrap/rendezvous_members.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kMemberPatience =
    5s;  // for a hello, and for a rank to leave that was told of a failure

}  // namespace

void RendezvousMembers::admit(FileDescriptor socket, const protocol::Session& session,
                              Clock::time_point now) {
  auto member = std::make_unique<Member>();
  member->socket = std::move(socket);
  member->session = session;
  member->since = now;
  const std::uint64_t who = next_++;
  watch(epoll_, EPOLL_CTL_MOD, member->socket, who, EPOLLIN);
  members_.emplace(who, std::move(member));
  ++hurried_;
}

std::vector<std::uint64_t> RendezvousMembers::of(const std::shared_ptr<Meeting>& meeting) const {
  std::vector<std::uint64_t> result;
  for (const auto& [who, member] : members_) {
    if (member->meeting == meeting && !member->answered) result.push_back(who);
  }
  return result;
}

bool RendezvousMembers::serve(std::uint64_t who, std::uint32_t events) {
  const auto found = members_.find(who);
  if (found == members_.end()) return false;
  Member& member = *found->second;
  if ((events & EPOLLOUT) != 0 && !send(who)) return false;
  if ((events & ~EPOLLOUT) == 0) return false;
  if (member.answered) {
    std::array<std::byte, 512> unheard;
    const ssize_t got = ::recv(member.socket.fd(), unheard.data(), unheard.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) remove(found);
    return false;
  }
  switch (member.reader.read(member.socket, member.session)) {
    case protocol::FrameResult::more:
      return false;
    case protocol::FrameResult::whole:
      return true;
    default:
      lose(who);
      return false;
  }
}

void RendezvousMembers::greet(std::uint64_t who) {
  --hurried_;
  at(who).greeted = true;
}

std::unique_ptr<Member> RendezvousMembers::remove(Members::iterator found) {
  std::unique_ptr<Member> member = std::move(found->second);
  members_.erase(found);
  hurried_ -= member->hurried();
  return member;
}

void RendezvousMembers::remove(std::uint64_t who) { remove(members_.find(who)); }

void RendezvousMembers::lose(std::uint64_t who) { on_lost_(*remove(members_.find(who))); }

bool RendezvousMembers::send(std::uint64_t who) {
  const auto found = members_.find(who);
  Member& member = *found->second;
  const bool there = member.outbox.send(member.socket);
  const bool done = member.answered && member.outbox.empty();
  if (!there && !member.answered) {
    lose(who);
    return false;
  }
  if (!there || (done && !member.lingers)) {
    remove(found);
    return false;
  }
  if (done) ::shutdown(member.socket.fd(), SHUT_WR);
  const bool wants_room = !member.outbox.empty();
  if (wants_room != member.watches_room) {
    watch(epoll_, EPOLL_CTL_MOD, member.socket, who, wants_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
    member.watches_room = wants_room;
  }
  return true;
}

void RendezvousMembers::answer(std::uint64_t who, protocol::Buffer frame) {
  Member& member = at(who);
  member.answered = true;
  member.outbox.add(std::move(frame));
  send(who);
}

void RendezvousMembers::answer(std::uint64_t who, const Error& error, Clock::time_point now) {
  Member& member = at(who);
  hurried_ += !member.hurried();
  member.lingers = true;
  member.since = now;
  answer(who, protocol::failure_frame(member.session, protocol::FrameType::failed, error));
}

void RendezvousMembers::expire(Clock::time_point now) {
  if (hurried_ == 0) return;
  for (auto member = members_.begin(); member != members_.end();) {
    const bool late = member->second->hurried() && now - member->second->since > kMemberPatience;
    hurried_ -= late;
    member = late ? members_.erase(member) : std::next(member);
  }
}

bool RendezvousMembers::nothing_to_say() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) {
    return member.second->outbox.empty() && !member.second->lingers;
  });
}

}  // namespace tutti

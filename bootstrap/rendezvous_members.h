// The connections of a rendezvous server to its members: processes that have proved that they know
// the secret. This code receives what they say and sends the answers; meetings judge what they
// say (rendezvous_meetings.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bootstrap/frames.h"
#include "core/error.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {

struct Meeting;  // rendezvous_meetings.h

/// A process that knows the secret.
struct Member {
  using Clock = std::chrono::steady_clock;

  FileDescriptor socket;
  protocol::Session session;
  Clock::time_point since;  // when it came, or was told of a failure
  protocol::FrameReader reader;
  protocol::Outbox outbox;
  int rank = -1;                     // as it said
  std::shared_ptr<Meeting> meeting;  // that it has joined
  bool greeted = false;              // its hello has come
  bool answered = false;             // the last word to it is in the outbox
  bool lingers = false;  // it was told of a failure: what it says is thrown away until it leaves,
                         // as a connection closed with something unread loses what was sent
  bool watches_room = false;  // epoll says when there is room to send

  bool hurried() const { return !greeted || lingers; }
};

/// Each has a number, by which epoll calls it. Any call that sends may find that a member is gone.
class RendezvousMembers {
 public:
  using Clock = Member::Clock;
  /// A member went away, or spoke out of turn; it is not among the members any more.
  using OnLost = std::function<void(const Member&)>;

  /// `epoll` outlives them. Numbers count up from `first`.
  RendezvousMembers(const FileDescriptor& epoll, std::uint64_t first, OnLost on_lost)
      : epoll_(epoll), next_(first), on_lost_(std::move(on_lost)) {}

  void admit(FileDescriptor socket, const protocol::Session& session, Clock::time_point now);
  bool has(std::uint64_t who) const { return members_.contains(who); }
  Member& at(std::uint64_t who) { return *members_.at(who); }
  /// The members of `meeting` that wait for an answer.
  std::vector<std::uint64_t> of(const std::shared_ptr<Meeting>& meeting) const;

  /// Does what epoll says. True: the member's reader has a whole frame.
  bool serve(std::uint64_t who, std::uint32_t events);
  /// Its hello has come.
  void greet(std::uint64_t who);
  void lose(std::uint64_t who);
  void remove(std::uint64_t who);

  /// Sends what the socket takes. False: the member is not here any more.
  bool send(std::uint64_t who);
  /// The last word to a member, which then leaves.
  void answer(std::uint64_t who, protocol::Buffer frame);
  void answer(std::uint64_t who, const Error& error, Clock::time_point now);

  /// Members that have some seconds only: to say hello, or to leave after a failure.
  bool any_hurried() const { return hurried_ > 0; }
  void expire(Clock::time_point now);
  /// Nothing is under way to any of them, and none lingers.
  bool nothing_to_say() const;

 private:
  using Members = std::unordered_map<std::uint64_t, std::unique_ptr<Member>>;
  std::unique_ptr<Member> remove(Members::iterator found);

  const FileDescriptor& epoll_;
  std::uint64_t next_;
  const OnLost on_lost_;
  Members members_;
  std::size_t hurried_ = 0;
};

}  // namespace tutti

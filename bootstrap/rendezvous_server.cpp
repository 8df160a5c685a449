// See rendezvous_server.h.
#include "bootstrap/rendezvous_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_round.h"
#include "core/background.h"
#include "core/error.h"
#include "core/log.h"
#include "core/settings.h"
#include "transport/socket.h"
#include "transport/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kHelloPatience = 5s;
constexpr auto kFarewell = 1500ms;  // for replies under way when the process ends
// What epoll says: the number of a place in the waiting room, or one of these.
constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kStop = kListener + 1,
                        kFirstMember = kListener + 2;

/// Somebody who knows the secret.
struct Member {
  struct Request {
    wire::Hello hello;
    wire::Bytes32 mac{};
  };
  struct ReplyHead {
    wire::ReplyHeader header;
    wire::Bytes32 mac{};
  };

  FileDescriptor socket;
  wire::Session session;
  Clock::time_point since;
  Request request;
  std::size_t received = 0;
  ReplyHead head;
  std::shared_ptr<const std::vector<std::byte>> payload;  // null: no reply yet
  std::size_t sent = 0;

  bool greeted() const { return received == sizeof(Request); }
};

class Server {
 public:
  Server(FileDescriptor listener, const wire::Bytes32& secret, Rounds rounds,
         std::chrono::nanoseconds life)
      : listener_(std::move(listener)),
        rounds_(rounds),
        life_(life),
        waiting_room_("rendezvous", secret) {
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) throw_system_error("epoll_create1 for the rendezvous server");
    watch(epoll_, EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
    if (rounds_ == Rounds::one) end_ = deadline_after(life_);
  }

  ~Server() { close_listener(); }

  void run(int stop_fd) {
    epoll_event stop{};
    stop.events = EPOLLIN;
    stop.data.u64 = kStop;
    if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, stop_fd, &stop) != 0) {
      throw_system_error("epoll_ctl for the rendezvous server");
    }
    std::array<epoll_event, 256> events;
    while (true) {
      const int ready = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                                     milliseconds_until(next_wake()));
      if (ready < 0 && errno != EINTR) throw_system_error("epoll_wait in the rendezvous server");
      now_ = Clock::now();
      for (int i = 0; i < ready; ++i) {
        const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
        if (who < WaitingRoom::kPlaces) {
          read_proof(who);
        } else if (who >= kFirstMember) {
          serve_member(who);
        } else if (who == kStop) {
          ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, stop_fd, nullptr);
          close_listener();
          stopping_ = true;
          end_ = now_ + kFarewell;
        }
      }
      expire();
      if (!closing_) accept();
      if (now_ >= end_ || (closing_ && nothing_to_say())) return;
    }
  }

 private:
  // --- waiting ---

  Clock::time_point next_wake() const {
    Clock::time_point wake = end_;
    if (!round_.failure()) wake = std::min(wake, round_.deadline());
    wake = std::min(wake, waiting_room_.next_wake(now_));
    if (silent_ > 0) wake = std::min(wake, now_ + 1s);  // members without a hello
    return wake;
  }

  void expire() {
    waiting_room_.expire(now_);
    if (!round_.failure() && now_ >= round_.deadline()) {
      round_.expire();
      settle();
    }
    if (silent_ == 0) return;
    for (auto member = members_.begin(); member != members_.end();) {
      const bool late = !member->second->greeted() && now_ - member->second->since > kHelloPatience;
      silent_ -= late;
      member = late ? members_.erase(member) : std::next(member);
    }
  }

  bool nothing_to_say() const {
    if (silent_ > 0 && !stopping_) return false;
    return std::none_of(members_.begin(), members_.end(),
                        [](const auto& member) { return member.second->payload != nullptr; });
  }

  // --- admission ---

  void accept() {
    const bool room = waiting_room_.accept(listener_, epoll_, now_);
    // With no room the listener would wake the loop all the time.
    if (room != accepting_) {
      watch(epoll_, EPOLL_CTL_MOD, listener_, kListener, room ? EPOLLIN : 0U);
    }
    accepting_ = room;
  }

  void read_proof(std::size_t place) {
    auto admitted = waiting_room_.read(place, now_);
    if (!admitted) return;
    auto member = std::make_unique<Member>();
    member->socket = std::move(admitted->socket);
    member->session = admitted->session;
    member->since = now_;
    const std::uint64_t who = next_member_++;
    watch(epoll_, EPOLL_CTL_MOD, member->socket, who, EPOLLIN);
    members_.emplace(who, std::move(member));
    ++silent_;
  }

  // --- members ---

  void serve_member(std::uint64_t who) {
    const auto found = members_.find(who);
    if (found == members_.end()) return;
    Member& member = *found->second;
    if (member.payload) {
      if (!send_reply(member)) members_.erase(found);
      return;
    }
    std::byte surplus{};
    const auto rest = member.greeted()
                          ? std::span(&surplus, 1)
                          : wire::writable_bytes_of(member.request).subspan(member.received);
    const ssize_t got = ::recv(member.socket.fd(), rest.data(), rest.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0 || member.greeted()) return lose(who);
    member.received += static_cast<std::size_t>(got);
    if (member.greeted()) hear(who);
  }

  /// A member went away, or spoke out of turn.
  void lose(std::uint64_t who) {
    const auto found = members_.find(who);
    const bool greeted = found->second->greeted();
    const int rank = found->second->request.hello.rank;
    members_.erase(found);
    if (!greeted) {
      --silent_;
    } else {
      round_.leave(rank);
      settle();
    }
  }

  void hear(std::uint64_t who) {
    Member& member = *members_.at(who);
    --silent_;
    if (!wire::equal(wire::hello_mac(member.session, member.request.hello), member.request.mac)) {
      members_.erase(who);
      return;
    }
    if (closing_) {
      const Error used(ErrorCode::invalid_usage,
                       "rendezvous: the ranks of this unique id have met already; an id is good "
                       "for one communicator, so make another");
      return reply(who, used);
    }
    const auto error = round_.join(member.request.hello, peer_name(member.socket));
    if (error) return reply(who, *error);
    settle();
  }

  static std::string peer_name(const FileDescriptor& socket) {
    SocketAddress address;
    address.length = sizeof address.storage;
    if (::getpeername(socket.fd(), address.get(), &address.length) != 0) return "a lost connection";
    return to_string(address);
  }

  /// Once the round has come to an end, tells everybody who has joined.
  void settle() {
    if (round_.failure()) {
      for (const std::uint64_t who : waiting_members()) reply(who, *round_.failure());
      // Ranks that are late shall hear it too.
      if (rounds_ == Rounds::one && !closing_) end_ = deadline_after(life_);
    } else if (round_.complete()) {
      wire::Bytes32 nonce;
      wire::fill_random(nonce);
      const auto roster = std::make_shared<const std::vector<std::byte>>(round_.roster(nonce));
      const auto roster_hash = wire::hash({}, "payload", {*roster});
      wire::ReplyHeader header;
      header.kind = wire::ReplyKind::roster;
      header.bytes = static_cast<std::uint32_t>(roster->size());
      for (const std::uint64_t who : waiting_members()) reply(who, header, roster, roster_hash);
      round_ = RendezvousRound();
      if (rounds_ == Rounds::one) {
        close_listener();
        end_ = deadline_after(life_);
      }
    } else if (rounds_ == Rounds::one) {
      end_ = Clock::time_point::max();  // the round has a deadline of its own now
    }
  }

  std::vector<std::uint64_t> waiting_members() const {
    std::vector<std::uint64_t> result;
    for (const auto& [who, member] : members_) {
      if (member->greeted() && !member->payload) result.push_back(who);
    }
    return result;
  }

  void reply(std::uint64_t who, const Error& error) {
    const std::string_view text = std::string_view(error.what()).substr(0, wire::kMaxErrorText);
    const auto bytes = std::as_bytes(std::span(text));
    wire::ReplyHeader header;
    header.kind = wire::ReplyKind::error;
    header.code = static_cast<std::uint32_t>(error.code());
    header.rank = error.rank();
    header.bytes = static_cast<std::uint32_t>(text.size());
    reply(who, header, std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()),
          wire::hash({}, "payload", {bytes}));
  }

  void reply(std::uint64_t who, const wire::ReplyHeader& header,
             std::shared_ptr<const std::vector<std::byte>> payload,
             const wire::Bytes32& payload_hash) {
    Member& member = *members_.at(who);
    member.head = {header, wire::reply_mac(member.session, header, payload_hash)};
    member.payload = std::move(payload);
    if (!send_reply(member)) {
      members_.erase(who);
    } else {
      watch(epoll_, EPOLL_CTL_MOD, member.socket, who, EPOLLOUT);
    }
  }

  /// Sends what the socket takes; false when nothing is left to send, or nobody to send it to.
  static bool send_reply(Member& member) {
    const auto head = wire::bytes_of(member.head);
    while (member.sent < head.size() + member.payload->size()) {
      const bool in_head = member.sent < head.size();
      const auto rest = in_head ? head.subspan(member.sent)
                                : std::span(*member.payload).subspan(member.sent - head.size());
      const ssize_t sent = ::send(member.socket.fd(), rest.data(), rest.size(),
                                  MSG_NOSIGNAL | (in_head ? MSG_MORE : 0));
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      member.sent += static_cast<std::size_t>(sent);
    }
    return false;
  }

  /// No new peers; the server ends once its replies are delivered.
  void close_listener() {
    closing_ = true;
    if (!listener_) return;
    // Also ends it in forked children, which hold copies: a late rank is then refused at once.
    ::shutdown(listener_.fd(), SHUT_RDWR);
    listener_.reset();
    waiting_room_.clear();
  }

  FileDescriptor listener_;
  FileDescriptor epoll_;
  const Rounds rounds_;
  const std::chrono::nanoseconds life_;  // of Rounds::one without ranks, and after a failure

  Clock::time_point now_ = Clock::now();
  Clock::time_point end_ = Clock::time_point::max();
  bool accepting_ = true;
  bool closing_ = false;   // nobody new comes in
  bool stopping_ = false;  // the process ends
  WaitingRoom waiting_room_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Member>> members_;
  std::uint64_t next_member_ = kFirstMember;
  std::size_t silent_ = 0;  // members whose hello has not come
  RendezvousRound round_;
};

}  // namespace

UniqueId serve_rendezvous(Rounds rounds, const MeetingPlace& place) {
  const auto address = parse_address(place.address, 0);
  if (!address) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("TUTTI_ADDRESS is '{}', which is neither an IPv4 nor an IPv6 address",
                            place.address));
  }
  FileDescriptor listener = listen_at(*address);
  if (!listener) {
    throw_system_error(fmt::format(
        "the rendezvous cannot listen at {} (set TUTTI_ADDRESS to an address of this host)",
        place.address));
  }
  check_setting("TUTTI_RENDEZVOUS_TIMEOUT", "MeetingPlace::timeout", place.timeout);
  wire::Ticket ticket{bound_address(listener), {}};
  wire::fill_random(ticket.secret);
  const auto server =
      std::make_shared<Server>(std::move(listener), ticket.secret, rounds, place.timeout);
  run_in_background("tutti-rendezv", [server](int stop_fd) { server->run(stop_fd); });
  return wire::encode(ticket);
}

}  // namespace tutti

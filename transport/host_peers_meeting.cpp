// How a rank gets its sockets to the other processes of its host: it connects to those before it,
// and those after it connect to it. All at once: nobody waits for a particular rank, so none can
// hold up the others, and strangers cannot either (waiting_room.h). The handshake is that of all
// sockets of Tutti (handshake.h), with a secret for each listener; then a caller says its rank.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "transport/handshake.h"
#include "transport/host_peers.h"
#include "transport/introduction.h"
#include "transport/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 2ms;        // before another attempt
constexpr auto kRefusedFor = 1s;    // after that, a rank that refuses connections has left
constexpr auto kPatience = 5s;      // for a caller to say its rank
constexpr auto kLookAgain = 100ms;  // at ranks that are to call, and have not
// What epoll says: the number of a place in the waiting room, or one of these.
constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kFirstPeer = kListener + 1,
                        kFirstCaller = std::uint64_t{1} << 32;

struct CallersRank {
  std::int32_t rank = -1;
  wire::Bytes32 mac{};
};
static_assert(sizeof(CallersRank) == 36);

wire::Bytes32 mac_of(const wire::Session& session, std::int32_t rank) {
  return session.mac("host peer", {wire::bytes_of(rank)});
}

/// A handshake at one rank's listener says nothing at another's.
wire::Bytes32 listeners_secret(std::span<const std::byte, 32> session_secret, std::int32_t rank) {
  return wire::hash(session_secret, "host peers", {wire::bytes_of(rank)});
}

bool is_dead(pid_t pid) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return errno == ESRCH;
  pollfd entry{process.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

class HostPeers::Meeting {
 public:
  Meeting(const FileDescriptor& listener, int rank, std::span<const int> others,
          std::span<const HostPeerAddress> addresses, std::span<const std::byte, 32> secret,
          Deadline deadline)
      : listener_(listener),
        rank_(rank),
        others_(others),
        addresses_(addresses),
        secret_(secret),
        deadline_(deadline),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        waiting_room_(fmt::format("rank {}", rank), listeners_secret(secret, rank)) {
    if (!epoll_) {
      throw_system_error(fmt::format("rank {}: epoll_create1 (see `ulimit -n`)", rank));
    }
  }

  std::map<int, FileDescriptor> run() {
    watch(epoll_, EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
    for (const int r : others_) {
      if (r < rank_) call(r);
    }
    while (missing() > 0) {
      wait_for(epoll_.fd(), POLLIN, next_wake());
      now_ = Clock::now();
      std::array<epoll_event, 128> events;
      const int ready =
          ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
      for (int i = 0; i < ready; ++i) serve(events[static_cast<std::size_t>(i)].data.u64);
      for (auto& [r, call_to_it] : calls_) {
        if (call_to_it.pausing && now_ >= call_to_it.again) call(r);
      }
      waiting_room_.expire(now_);
      std::erase_if(callers_,
                    [&](const auto& caller) { return now_ - caller.second.since > kPatience; });
      accept();
      if (missing() > 0 && now_ >= look_at_) look_at_callers();
      if (missing() > 0 && now_ >= deadline_) throw_late();
    }
    return std::move(sockets_);
  }

 private:
  struct Call {
    Introduction attempt;
    bool pausing = false;
    bool said_rank = false;
    bool done = false;
    Clock::time_point again{};
    Clock::time_point refused_since{};
  };
  struct Caller {
    FileDescriptor socket;
    wire::Session session;
    Clock::time_point since;
    CallersRank says;
    std::size_t received = 0;
  };

  std::size_t missing() const { return others_.size() - sockets_.size(); }
  /// By its own word.
  pid_t pid_of(int r) const { return addresses_[static_cast<std::size_t>(r)].pid; }

  Clock::time_point next_wake() const {
    Clock::time_point wake = std::min({deadline_, look_at_, waiting_room_.next_wake(now_)});
    for (const auto& [r, call_to_it] : calls_) {
      if (call_to_it.pausing) wake = std::min(wake, call_to_it.again);
    }
    return callers_.empty() ? wake : std::min(wake, now_ + 1s);
  }

  void serve(std::uint64_t number) {
    if (number < WaitingRoom::kPlaces) {
      auto admitted = waiting_room_.read(number, now_);
      if (!admitted) return;
      const std::uint64_t caller = next_caller_++;
      watch(epoll_, EPOLL_CTL_MOD, admitted->socket, caller, EPOLLIN);
      callers_[caller] = {std::move(admitted->socket), admitted->session, now_, {}, 0};
      hear(caller);
    } else if (number >= kFirstCaller) {
      hear(number);
    } else if (number >= kFirstPeer) {
      go_on(static_cast<int>(number - kFirstPeer));
    }
  }

  // --- ranks that this one connects to ---

  void call(int r) {
    Call& c = calls_[r];
    c.pausing = false;
    const auto& address = addresses_[static_cast<std::size_t>(r)];
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const SocketAddress name = socket_address(address.socket);
    if (!socket) {
      throw_system_error(fmt::format("rank {}: no socket to rank {} (see `ulimit -n`)", rank_, r));
    }
    if (::connect(socket.fd(), name.get(), name.length) != 0) {
      const int error = errno;
      if (error == ECONNREFUSED && c.refused_since == Clock::time_point{}) c.refused_since = now_;
      return fail(r, std::generic_category().message(error));
    }
    c.refused_since = {};
    watch(epoll_, EPOLL_CTL_ADD, socket, kFirstPeer + static_cast<std::uint64_t>(r), EPOLLIN);
    c.attempt = Introduction(std::move(socket), listeners_secret(secret_, r));
    go_on(r);
  }

  void go_on(int r) {
    Call& c = calls_.at(r);
    if (c.done || c.attempt.ended()) return;
    c.attempt.step();
    if (!c.said_rank && (c.attempt.state() == Introduction::State::answer ||
                         c.attempt.state() == Introduction::State::done)) {
      say_rank(c);
    }
    if (!c.attempt.ended()) return;
    if (c.attempt.state() == Introduction::State::done) {
      if (peer_user(c.attempt.socket()) != static_cast<std::int64_t>(::getuid())) {
        return fail(r, "another user answers at its socket");
      }
      c.done = true;
      return admit(r, std::move(c.attempt.socket()));
    }
    switch (c.attempt.reason()) {
      case Introduction::Reason::stranger:
      case Introduction::Reason::other_version:
      case Introduction::Reason::wrong_answer:
        throw Error(ErrorCode::mismatch,
                    fmt::format("what answers rank {} at the socket of rank {} (pid {}) is not a "
                                "rank of this job, or not of this version of Tutti",
                                rank_, r, pid_of(r)),
                    r);
      default:
        fail(r, "it closed the connection");
    }
  }

  /// Right behind the proof, without waiting for the answer. Only a small packet was sent before,
  /// so there is room. A connection that is lost says so when it is read from.
  void say_rank(Call& c) {
    const CallersRank me{rank_, mac_of(c.attempt.session(), rank_)};
    write_exactly(c.attempt.socket(), wire::bytes_of(me), Deadline{});
    c.said_rank = true;
  }

  /// Tries again in a while, unless the rank is gone. (Where strangers crowd the other one's
  /// waiting room, it may close the connection of a rank.)
  void fail(int r, const std::string& problem) {
    Call& c = calls_.at(r);
    // A rank that has given up as another one died is not the one to be named.
    if (is_dead(pid_of(r))) throw_lost(r, problem);
    for (const int other : others_) {
      if (is_dead(pid_of(other))) throw_lost(other, "its process has ended");
    }
    const bool refused = c.refused_since != Clock::time_point{};
    if (refused && now_ - c.refused_since >= kRefusedFor) throw_lost(r, problem);
    c.attempt = Introduction();
    c.said_rank = false;
    c.pausing = true;
    c.again = now_ + kPause;
  }

  // --- ranks that connect to this one ---

  void accept() {
    const bool room = waiting_room_.accept(listener_, epoll_, now_);
    // With no room the listener would wake its rank all the time.
    if (room != accepting_) {
      watch(epoll_, EPOLL_CTL_MOD, listener_, kListener, room ? EPOLLIN : 0U);
    }
    accepting_ = room;
  }

  /// Who has not called yet listens itself, unless it is gone, or has given up.
  void look_at_callers() {
    look_at_ = now_ + kLookAgain;
    for (const int r : others_) {
      if (r < rank_ || sockets_.contains(r)) continue;
      const FileDescriptor socket(
          ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const SocketAddress name = socket_address(addresses_[static_cast<std::size_t>(r)].socket);
      const bool refused =
          ::connect(socket.fd(), name.get(), name.length) != 0 && errno == ECONNREFUSED;
      if (!refused) {
        silent_.erase(r);
        continue;
      }
      // Its call may be under way, and may be its last: then it listens no more, either.
      const auto since = silent_.try_emplace(r, now_).first->second;
      if (now_ - since < kLookAgain) continue;
      for (const int other : others_) {
        if (is_dead(pid_of(other))) throw_lost(other, "its process has ended");
      }
      if (now_ - since >= kRefusedFor) throw_lost(r, "nothing listens there any more");
    }
  }

  void hear(std::uint64_t number) {
    const auto found = callers_.find(number);
    if (found == callers_.end()) return;
    Caller& caller = found->second;
    const ReadResult result =
        read_more(caller.socket, wire::writable_bytes_of(caller.says), caller.received);
    if (result == ReadResult::more) return;
    const int r = caller.says.rank;
    // A caller that comes twice, or is of another user, is not one of us.
    const bool is_one_of_us = result == ReadResult::whole && r > rank_ &&
                              std::binary_search(others_.begin(), others_.end(), r) &&
                              !sockets_.contains(r) &&
                              wire::equal(mac_of(caller.session, r), caller.says.mac) &&
                              peer_user(caller.socket) == static_cast<std::int64_t>(::getuid());
    if (is_one_of_us) admit(r, std::move(caller.socket));
    callers_.erase(found);
  }

  void admit(int r, FileDescriptor socket) {
    ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, socket.fd(), nullptr);
    sockets_[r] = std::move(socket);
  }

  // --- errors ---

  [[noreturn]] void throw_lost(int r, const std::string& problem) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank {} cannot connect to rank {} (pid {}): {}; it has probably died",
                            rank_, r, pid_of(r), problem),
                r);
  }

  [[noreturn]] void throw_late() {
    std::vector<std::string> missing;
    int first = -1;
    for (const int r : others_) {
      if (sockets_.contains(r)) continue;
      if (first < 0 || (!is_dead(pid_of(first)) && is_dead(pid_of(r)))) first = r;
      missing.push_back(fmt::format("rank {} (pid {})", r, pid_of(r)));
    }
    throw Error(ErrorCode::timed_out,
                fmt::format("rank {}: {} of this host did not connect in time", rank_,
                            fmt::join(missing, ", ")),
                first);
  }

  const FileDescriptor& listener_;
  const int rank_;
  const std::span<const int> others_;  // in order
  const std::span<const HostPeerAddress> addresses_;
  const std::span<const std::byte, 32> secret_;
  const Deadline deadline_;
  FileDescriptor epoll_;
  WaitingRoom waiting_room_;
  bool accepting_ = true;
  Clock::time_point now_ = Clock::now();
  Clock::time_point look_at_ = now_ + kLookAgain;
  std::map<int, Clock::time_point> silent_;  // ranks that are to call, and do not listen
  std::map<int, Call> calls_;
  std::map<std::uint64_t, Caller> callers_;
  std::uint64_t next_caller_ = kFirstCaller;
  std::map<int, FileDescriptor> sockets_;  // by rank
};

std::map<int, FileDescriptor> HostPeers::get_sockets(int rank, std::span<const int> others,
                                                     std::span<const HostPeerAddress> addresses,
                                                     std::span<const std::byte, 32> session_secret,
                                                     Deadline deadline) {
  return Meeting(listener_, rank, others, addresses, session_secret, deadline).run();
}

}  // namespace tutti

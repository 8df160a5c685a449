// The loop of the server: who may come in, and until when. See rendezvous_server.h; the meetings
// are in rendezvous_meetings.h.
#include "bootstrap/rendezvous_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "bootstrap/rendezvous_meetings.h"
#include "bootstrap/rendezvous_members.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "core/settings.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/reactor.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kFarewell = 1500ms;   // for replies under way when the process ends
constexpr auto kLastWords = 2000ms;  // for ranks to come that have not heard of a failure
// What epoll says: the number of a place in the waiting room, or one of these.
constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kStop = kListener + 1,
                        kChanged = kListener + 2, kRollCall = kListener + 3,
                        kFirstMember = kListener + 4;

class Server : Reactor::Handler, RendezvousMeetings::Owner {
 public:
  Server(FileDescriptor listener, const protocol::Bytes32& secret, Rounds rounds,
         std::chrono::nanoseconds life, std::shared_ptr<Appointments> appointments = nullptr)
      : listener_(std::move(listener)),
        rounds_(rounds),
        life_(life),
        appointments_(std::move(appointments)),
        waiting_room_("rendezvous", secret),
        members_(epoll_, kFirstMember, [this](const Member& member) { meetings_.lost(member); }),
        meetings_(*this, members_, appointments_) {
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) throw_system_error("epoll_create1 for the rendezvous server");
    watch(epoll_, EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
    if (rounds_ == Rounds::one) end_ = deadline_after(life_);
    if (!appointments_) return;
    watch(epoll_, EPOLL_CTL_ADD, appointments_->changed(), kChanged, EPOLLIN);
    // So that a child of fork() does not answer there, when this process is gone.
    Reactor::instance().watch(listener_.fd(), 0, *this);
  }

  ~Server() override { close_listener(); }

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
          if (members_.serve(who, events[static_cast<std::size_t>(i)].events)) meetings_.hear(who);
        } else if (who == kChanged) {
          look_at_appointments();
        } else if (who == kStop) {
          ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, stop_fd, nullptr);
          stopping_ = true;
          end_ = now_ + (is_to_tell_of_failure() ? kLastWords : kFarewell);
        }
      }
      expire();
      if (stopping_ && !is_to_tell_of_failure()) close_listener();
      if (!closing_) accept();
      if (now_ >= end_ || (closing_ && nothing_to_say())) return;
    }
  }

 private:
  void on_events(int, std::uint32_t) override {}

  // --- what the meetings ask and tell ---

  Clock::time_point now() const override { return now_; }
  bool is_in_trouble() const override { return waiting_room_.is_in_trouble(); }
  bool is_closing() const override { return closing_; }
  const std::string& trouble() const override { return waiting_room_.trouble(); }
  void watch_roll_call(const FileDescriptor& descriptor) override {
    watch(epoll_, EPOLL_CTL_ADD, descriptor, kRollCall, EPOLLIN);
  }
  void on_under_way() override {
    if (rounds_ == Rounds::one) end_ = Clock::time_point::max();  // the round has a deadline
  }
  void on_complete() override {
    if (rounds_ == Rounds::one) close_listener();
  }
  void on_over() override {
    if (rounds_ == Rounds::one) end_ = deadline_after(life_);
  }

  /// This rank has been called to a meeting, or is in it no longer.
  void look_at_appointments() {
    appointments_->read_changes();
    if (!appointments_->is_closed()) return meetings_.look_at_appointments();
    close_listener();
    stopping_ = true;
    end_ = std::min(end_, now_ + kFarewell);
  }

  // --- waiting ---

  Clock::time_point next_wake() const {
    Clock::time_point wake = std::min({end_, waiting_room_.next_wake(now_), meetings_.next_wake()});
    if (members_.any_hurried()) wake = std::min(wake, now_ + 1s);
    return wake;
  }

  void expire() {
    waiting_room_.expire(now_);
    meetings_.expire();
    members_.expire(now_);
  }

  /// The meeting has failed, and some of its ranks may still come. (A launcher has seen them end.)
  bool is_to_tell_of_failure() const {
    return rounds_ == Rounds::one && meetings_.is_to_tell_of_failure();
  }

  /// Nobody waits for anything from here. A process that ends has answers to deliver, at most.
  bool nothing_to_say() const {
    if (!stopping_ && (members_.any_hurried() || !meetings_.empty())) return false;
    return members_.nothing_to_say();
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
    members_.admit(std::move(admitted->socket), admitted->session, now_);
  }

  /// No new peers; the server ends once its replies are delivered.
  void close_listener() {
    closing_ = true;
    if (!listener_) return;
    // Also ends it in forked children, which hold copies: a late rank is then refused at once.
    ::shutdown(listener_.fd(), SHUT_RDWR);
    if (appointments_) Reactor::instance().forget(*this);
    listener_.reset();
    waiting_room_.clear();
  }

  FileDescriptor listener_;
  FileDescriptor epoll_;
  const Rounds rounds_;
  const std::chrono::nanoseconds life_;  // of Rounds::one without ranks, and after a failure
  const std::shared_ptr<Appointments> appointments_;  // null: ranks meet by a unique id

  Clock::time_point now_ = Clock::now();
  Clock::time_point end_ = Clock::time_point::max();
  bool accepting_ = true;
  bool closing_ = false;   // nobody new comes in
  bool stopping_ = false;  // the process ends
  WaitingRoom waiting_room_;
  RendezvousMembers members_;
  RendezvousMeetings meetings_;
};

/// `chosen`: an address, or "": one for ranks of this host alone.
FileDescriptor listen_for_meetings(const std::string& chosen) {
  if (is_loopback_down()) {
    throw Error(ErrorCode::system,
                "the ranks of this host cannot meet, as its loopback interface is down: bring it "
                "up (`ip link set lo up`)");
  }
  const SocketAddress address =
      chosen.empty() ? address_for_this_host() : listening_address(chosen);
  FileDescriptor listener = listen_for_ranks(address);
  if (!listener) {
    throw_system_error(
        fmt::format("the rendezvous cannot listen at {}{} (set TUTTI_ADDRESS to an address of this "
                    "host: {})",
                    host_text(address), at_which_ports(), own_addresses_text()));
  }
  return listener;
}

UniqueId serve(FileDescriptor listener, Rounds rounds, std::chrono::nanoseconds life,
               const std::shared_ptr<Appointments>& appointments) {
  protocol::Ticket ticket{bound_address(listener), {}};
  protocol::fill_random(ticket.secret);
  const auto server =
      std::make_shared<Server>(std::move(listener), ticket.secret, rounds, life, appointments);
  run_in_background("tutti-rendezv", [server](int stop_fd) { server->run(stop_fd); });
  return protocol::encode(ticket);
}

}  // namespace

UniqueId serve_rendezvous(Rounds rounds, const MeetingPlace& place) {
  FileDescriptor listener = listen_for_meetings(place.address);
  check_setting("TUTTI_RENDEZVOUS_TIMEOUT", "MeetingPlace::timeout", place.timeout);
  return serve(std::move(listener), rounds, place.timeout, nullptr);
}

UniqueId serve_appointments(const std::shared_ptr<Appointments>& appointments,
                            const std::string& address) {
  return serve(listen_for_meetings(address), Rounds::many, {}, appointments);
}

}  // namespace tutti

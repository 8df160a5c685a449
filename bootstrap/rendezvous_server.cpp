// See rendezvous_server.h.
#include "bootstrap/rendezvous_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_members.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_round.h"
#include "bootstrap/rendezvous_tree.h"
#include "bootstrap/roll_call.h"
#include "core/background.h"
#include "core/error.h"
#include "core/log.h"
#include "core/settings.h"
#include "transport/rank_listener.h"
#include "transport/reactor.h"
#include "transport/socket.h"
#include "transport/tcp_socket.h"
#include "transport/waiting_room.h"

namespace tutti {

/// A round, and what its ranks are sent.
struct Meeting {
  RendezvousRound round;
  wire::Buffer roster;                  // once all have joined
  int hellos = 0;                       // that have come
  std::unique_ptr<RollCall> roll_call;  // where this rank is the first of a list of handles
};

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr rlim_t kOtherDescriptors = 64;  // that the process has, beside those of the ranks
constexpr auto kFarewell = 1500ms;        // for replies under way when the process ends
constexpr auto kLastWords = 2000ms;       // for ranks to come that have not heard of a failure
// What epoll says: the number of a place in the waiting room, or one of these.
constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kStop = kListener + 1,
                        kChanged = kListener + 2, kRollCall = kListener + 3,
                        kFirstMember = kListener + 4;
constexpr std::size_t kMostFailed = 64;  // so many failures of meetings by number are kept

class Server : Reactor::Handler {
 public:
  Server(FileDescriptor listener, const wire::Bytes32& secret, Rounds rounds,
         std::chrono::nanoseconds life, std::shared_ptr<Appointments> appointments = nullptr)
      : listener_(std::move(listener)),
        rounds_(rounds),
        life_(life),
        appointments_(std::move(appointments)),
        waiting_room_("rendezvous", secret),
        members_(epoll_, kFirstMember, [this](const Member& member) { lost(member); }) {
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
          if (members_.serve(who, events[static_cast<std::size_t>(i)].events)) hear(who);
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

  // --- waiting ---

  Clock::time_point next_wake() const {
    Clock::time_point wake = std::min(end_, waiting_room_.next_wake(now_));
    for (const auto& meeting : meetings_) {
      wake = std::min(wake, meeting->round.deadline());
      if (meeting->roll_call) wake = std::min(wake, meeting->roll_call->next_wake());
    }
    if (members_.any_hurried()) wake = std::min(wake, now_ + 1s);
    return wake;
  }

  void expire() {
    waiting_room_.expire(now_);
    for (const auto& meeting : std::vector(meetings_.begin(), meetings_.end())) {
      if (meeting->roll_call) call_the_roll(meeting);
      if (meeting->round.over()) continue;
      if (now_ < meeting->round.deadline()) continue;
      meeting->round.expire(waiting_room_.trouble());
      settle(meeting);
    }
    members_.expire(now_);
  }

  /// Nobody waits for anything from here. A process that ends has answers to deliver, at most.
  bool nothing_to_say() const {
    if (!stopping_ && (members_.any_hurried() || !meetings_.empty())) return false;
    return members_.nothing_to_say();
  }

  /// The meeting has failed, and some of its ranks may still come. (A launcher has seen them end.)
  bool is_to_tell_of_failure() const {
    const auto joining = joining_.find(0);
    return rounds_ == Rounds::one && joining != joining_.end() &&
           joining->second->round.failure() &&
           joining->second->hellos < joining->second->round.size();
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

  // --- meetings ---

  void lost(const Member& member) {
    if (!member.meeting) return;
    member.meeting->round.leave(member.rank);
    settle(member.meeting);
  }

  void hear(std::uint64_t who) {
    Member& member = members_.at(who);
    const wire::FrameReader& frame = member.reader;
    if (!member.greeted && frame.type() == wire::FrameType::hello &&
        frame.payload().size() >= sizeof(wire::Hello)) {
      return join(who);
    }
    if (!member.greeted && frame.type() == wire::FrameType::trouble) return refuse(who);
    if (!member.greeted && frame.type() == wire::FrameType::question && appointments_) {
      return answer_question(who);
    }
    if (!member.meeting) return members_.lose(who);
    const std::shared_ptr<Meeting> meeting = member.meeting;
    const auto failure = frame.type() == wire::FrameType::trouble
                             ? wire::failure_in(frame.payload(), meeting->round.size())
                             : std::nullopt;
    if (failure) {
      meeting->round.fail(*failure);
    } else if (frame.type() == wire::FrameType::have && frame.payload().empty() &&
               meeting->round.phase() != RendezvousRound::Phase::joining) {
      meeting->round.have(member.rank);
    } else {
      return members_.lose(who);
    }
    settle(meeting);
  }

  void join(std::uint64_t who) {
    Member& member = members_.at(who);
    wire::Hello hello;
    std::memcpy(static_cast<void*>(&hello), member.reader.payload().data(), sizeof hello);
    members_.greet(who);
    member.rank = hello.rank;
    if (closing_) {
      const Error used(ErrorCode::invalid_usage,
                       "rendezvous: the ranks of this unique id have met already; an id is good "
                       "for one communicator, so make another");
      return members_.answer(who, used, now_);
    }
    if (appointments_) {
      const auto failed = failed_.find(hello.about.number);
      if (failed != failed_.end()) return members_.answer(who, failed->second, now_);
      if (const auto wrong = appointments_->judge(hello.about)) {
        members_.answer(who, *wrong, now_);
        // Ranks that come to it later hear why.
        if (wrong->code() == ErrorCode::mismatch) fail(next_meeting(hello.about.number), *wrong);
        return;
      }
    } else if (hello.about != Appointment{}) {
      return members_.lose(who);
    }
    const std::shared_ptr<Meeting> meeting = next_meeting(hello.about.number);
    ++meeting->hellos;
    const auto card = member.reader.payload().subspan(sizeof hello);
    if (const auto error = meeting->round.join(hello, card, peer_name(member.socket))) {
      return members_.answer(who, *error, now_);
    }
    if (const auto error = need_descriptors(hello.size)) meeting->round.fail(*error);
    member.meeting = meeting;
    settle(meeting);
  }

  /// `number`: of the appointment; 0: of a unique id.
  std::shared_ptr<Meeting> next_meeting(std::uint64_t number) {
    std::shared_ptr<Meeting>& meeting = joining_[number];
    if (!meeting) {
      meeting = std::make_shared<Meeting>();
      meetings_.push_back(meeting);
    }
    return meeting;
  }

  /// A rank will not come, and says why: so the others need not wait for it.
  void refuse(std::uint64_t who) {
    const auto payload = members_.at(who).reader.payload();
    const auto failure = wire::failure_in(payload, wire::kMaxRanks);
    const std::uint64_t number = wire::number_in(payload);
    members_.remove(who);
    if (!failure || closing_ || (number != 0 && !appointments_) || failed_.contains(number)) return;
    const std::shared_ptr<Meeting> meeting = next_meeting(number);
    ++meeting->hellos;
    fail(meeting, *failure);
  }

  static std::string peer_name(const FileDescriptor& socket) {
    SocketAddress address;
    address.length = sizeof address.storage;
    if (::getpeername(socket.fd(), address.get(), &address.length) != 0) return "a lost connection";
    return to_string(address);
  }

  /// Each rank keeps a connection until all have met.
  static std::optional<Error> need_descriptors(int size) {
    rlimit limit{};
    const rlim_t need = static_cast<rlim_t>(size) + kOtherDescriptors;
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return std::nullopt;
    return Error(ErrorCode::system,
                 fmt::format("rendezvous: {} ranks need {} descriptors in the process that made "
                             "the unique id, which may have {}: raise `ulimit -n` before it starts",
                             size, need, limit.rlim_cur));
  }

  void fail(const std::shared_ptr<Meeting>& meeting, const Error& why) {
    meeting->round.fail(why);
    settle(meeting);
  }

  /// Tells the ranks of a meeting how it stands, where that has changed.
  void settle(const std::shared_ptr<Meeting>& meeting) {
    const RendezvousRound& round = meeting->round;
    if (round.failure()) {
      for (const std::uint64_t who : members_.of(meeting))
        members_.answer(who, *round.failure(), now_);
      end(meeting);
    } else if (round.phase() == RendezvousRound::Phase::met) {
      for (const std::uint64_t who : members_.of(meeting)) {
        members_.answer(who, wire::frame(members_.at(who).session, wire::FrameType::go, {}));
      }
      end(meeting);
    } else {
      if (rounds_ == Rounds::one) end_ = Clock::time_point::max();  // the round has a deadline
      if (round.phase() == RendezvousRound::Phase::passing && !meeting->roster) {
        joining_.erase(round.about().number);
        meeting->roll_call.reset();
        if (rounds_ == Rounds::one) close_listener();
        place(meeting);
      }
    }
  }

  /// All have joined: tells each rank which rank it gets the roster from.
  void place(const std::shared_ptr<Meeting>& meeting) {
    const int size = meeting->round.size();
    meeting->roster = std::make_shared<const std::vector<std::byte>>(meeting->round.roster());
    wire::Placement placement;
    wire::fill_random(placement.nonce);
    placement.roster_bytes = meeting->roster->size();
    placement.roster_hash = wire::roster_hash(*meeting->roster);
    for (const std::uint64_t who : members_.of(meeting)) {
      Member& member = members_.at(who);
      const int parent = tree::parent(member.rank, size);
      const bool here = parent == tree::kServer;
      placement.parent = here ? wire::Endpoint{} : meeting->round.endpoint(parent);
      member.outbox.add(
          wire::frame(member.session, wire::FrameType::placement, {wire::bytes_of(placement)}));
      if (here) member.outbox.add(meeting->roster);
    }
    // Sent after all have one: a member that is gone ends the round.
    for (const std::uint64_t who : members_.of(meeting)) {
      if (members_.has(who)) members_.send(who);
    }
  }

  void end(const std::shared_ptr<Meeting>& meeting) {
    meetings_.remove(meeting);
    meeting->roll_call.reset();
    if (appointments_) {
      std::erase_if(joining_, [&](const auto& entry) {
        if (entry.second != meeting) return false;
        if (failed_.size() >= kMostFailed) failed_.erase(failed_.begin());
        failed_.emplace(entry.first, *meeting->round.failure());
        return true;
      });
    }
    // Ranks that are late shall hear of a failure, too: joining_ stays.
    if (rounds_ == Rounds::one) end_ = deadline_after(life_);
  }

  // --- appointments ---

  /// This rank has been called to a meeting, or is in it no longer.
  void look_at_appointments() {
    appointments_->read_changes();
    if (appointments_->is_closed()) {
      close_listener();
      stopping_ = true;
      end_ = std::min(end_, now_ + kFarewell);
      return;
    }
    for (const auto& call : appointments_->calls()) {
      if (call->rank != 0 || failed_.contains(call->about.number)) continue;
      const auto meeting = next_meeting(call->about.number);
      if (meeting->roll_call) continue;
      // Where it cannot ask, that meeting fails, and this server goes on.
      try {
        meeting->roll_call = std::make_unique<RollCall>(call, now_);
        watch(epoll_, EPOLL_CTL_ADD, meeting->roll_call->descriptor(), kRollCall, EPOLLIN);
      } catch (const Error& error) {
        fail(meeting, error);
      }
    }
    // Visitors that came before this rank was called.
    for (const auto& meeting : std::vector(meetings_.begin(), meetings_.end())) {
      if (meeting->round.phase() != RendezvousRound::Phase::joining) continue;
      if (meeting->round.about() == Appointment{}) continue;
      if (const auto wrong = appointments_->judge(meeting->round.about())) fail(meeting, *wrong);
    }
    std::erase_if(questions_, [&](const auto& question) {
      if (!members_.has(question.first)) return true;
      const auto wrong = appointments_->judge(question.second);
      if (wrong) members_.answer(question.first, *wrong, now_);
      return wrong.has_value();
    });
  }

  void call_the_roll(const std::shared_ptr<Meeting>& meeting) {
    const RendezvousRound& round = meeting->round;
    std::optional<Error> wrong;
    try {
      wrong = meeting->roll_call->step([&](int rank) { return !round.has(rank); }, now_);
    } catch (const Error& error) {
      wrong = error;
    }
    if (wrong) fail(meeting, *wrong);
  }

  /// The first rank of a meeting asks why this one does not come: where that is known, it is told;
  /// else as soon as it is, and that this process is there it sees by the connection.
  void answer_question(std::uint64_t who) {
    const auto about = members_.at(who).reader.payload_as<Appointment>();
    if (!about) return members_.lose(who);
    members_.greet(who);
    if (const auto wrong = appointments_->judge(*about)) {
      return members_.answer(who, *wrong, now_);
    }
    questions_[who] = *about;
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
  std::list<std::shared_ptr<Meeting>> meetings_;  // that are not over
  // By number: meetings with ranks still to come; of a unique id, also one that has failed.
  std::map<std::uint64_t, std::shared_ptr<Meeting>> joining_;
  std::map<std::uint64_t, Error> failed_;           // appointments, for those that come late
  std::map<std::uint64_t, Appointment> questions_;  // by the member that has asked
};

FileDescriptor listen_for_meetings(const std::string& address) {
  FileDescriptor listener = listen_for_ranks(listening_address(address));
  if (!listener) {
    throw_system_error(
        fmt::format("the rendezvous cannot listen at {}{} (set TUTTI_ADDRESS to an address of this "
                    "host: {})",
                    address, at_which_ports(), own_addresses_text()));
  }
  return listener;
}

UniqueId serve(FileDescriptor listener, Rounds rounds, std::chrono::nanoseconds life,
               const std::shared_ptr<Appointments>& appointments) {
  wire::Ticket ticket{bound_address(listener), {}};
  wire::fill_random(ticket.secret);
  const auto server =
      std::make_shared<Server>(std::move(listener), ticket.secret, rounds, life, appointments);
  run_in_background("tutti-rendezv", [server](int stop_fd) { server->run(stop_fd); });
  return wire::encode(ticket);
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

#include "bootstrap/roll_call.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

// Ranks that are called at the same time come within this time, and need not be asked.
constexpr auto kComeByThemselves = 50ms;
constexpr auto kAskAgain = 200ms;        // where no connection came about
constexpr int kMostRejections = 3;       // a busy listener may close an honest rank's connection
constexpr std::size_t kMostAsked = 128;  // at once: each takes a descriptor

}  // namespace

RollCall::RollCall(std::shared_ptr<const Appointments::Call> call, Time now)
    : call_(std::move(call)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      next_(now + kComeByThemselves) {
  if (!epoll_) throw_system_error("epoll_create1 to ask for missing ranks (see `ulimit -n`)");
}

std::optional<Error> RollCall::step(const std::function<bool(int)>& is_missing, Time now) {
  // All are looked at; this makes the descriptor quiet.
  std::array<epoll_event, 64> events;
  while (::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0) > 0) {
  }
  std::erase_if(absent_, [&](const auto& entry) { return !is_missing(entry.first); });
  if (now >= next_) {
    next_ = now + kAskAgain;
    for (int rank = 1; rank < static_cast<int>(call_->list.size()); ++rank) {
      if (absent_.size() >= kMostAsked) break;
      if (is_missing(rank) && !absent_.contains(rank)) call(rank, absent_[rank], now);
    }
    for (auto& [rank, absent] : absent_) {
      if (absent.attempt.descriptor() < 0 && now >= absent.again) call(rank, absent, now);
    }
  }
  for (auto& [rank, absent] : absent_) {
    if (auto error = go_on(rank, absent)) return error;
  }
  return std::nullopt;
}

void RollCall::call(int rank, Absent& absent, Time now) {
  const protocol::Ticket place = protocol::decode(call_->list[static_cast<std::size_t>(rank)].id);
  absent.attempt = Introduction(place.address, place.secret);
  absent.asked = false;
  absent.again = now + kAskAgain;
  if (absent.attempt.descriptor() < 0) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  event.data.u64 = static_cast<std::uint64_t>(rank);
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, absent.attempt.descriptor(), &event);
}

std::optional<Error> RollCall::go_on(int rank, Absent& absent) {
  Introduction& attempt = absent.attempt;
  if (!absent.asked) {
    if (!attempt.ended()) attempt.step();
    if (attempt.state() == Introduction::State::failed) return failed(rank, absent);
    if (attempt.state() != Introduction::State::done) return std::nullopt;
    const protocol::Buffer question = protocol::frame(
        attempt.session(), protocol::FrameType::question, {protocol::bytes_of(call_->about)});
    // A small frame over a new connection: there is room. One that is lost says so when it is read.
    write_exactly(attempt.socket(), *question, Deadline{});
    absent.asked = true;
  }
  switch (absent.reader.read(attempt.socket(), attempt.session())) {
    case protocol::FrameResult::more:
      return std::nullopt;
    case protocol::FrameResult::whole:
      if (absent.reader.type() == protocol::FrameType::failed) {
        const auto said = protocol::failure_in(absent.reader.payload(), protocol::kMaxRanks);
        if (said) return Error(said->code(), said->what(), rank);
      }
      return gone(rank, "what listens there says nonsense");
    default:
      return gone(rank, "it closed the connection, so it has ended, or has given up");
  }
}

std::optional<Error> RollCall::failed(int rank, Absent& absent) {
  Introduction& attempt = absent.attempt;
  switch (attempt.reason()) {
    case Introduction::Reason::unreachable:
      if (attempt.error() == ECONNREFUSED) return gone(rank, "nothing listens there any more");
      break;
    case Introduction::Reason::other_version:
      return Error(ErrorCode::mismatch,
                   fmt::format("rank {} ({}) runs another, incompatible version of Tutti", rank,
                               call_->list[static_cast<std::size_t>(rank)].process()),
                   rank);
    case Introduction::Reason::stranger:
      return gone(rank, "what listens there now is not a rank of Tutti");
    case Introduction::Reason::wrong_answer:
      return gone(rank, "what listens there now is another rank, or the handle was made up");
    case Introduction::Reason::rejected:
      if (++absent.rejections >= kMostRejections) {
        return gone(rank, "what listens there now is another rank, or the handle was made up");
      }
      break;
    default:
      break;
  }
  attempt = Introduction();  // closes its socket; again later
  return std::nullopt;
}

Error RollCall::gone(int rank, const std::string& why) const {
  const Handle& handle = call_->list[static_cast<std::size_t>(rank)];
  return Error(ErrorCode::peer_lost,
               fmt::format("rank {} ({}) is gone: {} ({})", rank, handle.process(), why,
                           to_string(protocol::decode(handle.id).address)),
               rank);
}

}  // namespace tutti

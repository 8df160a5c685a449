// See rendezvous_parent.h.
#include "bootstrap/rendezvous_parent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "bootstrap/frames.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 2ms;
constexpr auto kLongestPause = 100ms;  // between two attempts
// The server names a rank that is gone, at once. A child that cannot connect leaves the server this
// long.
constexpr auto kRefusedFor = 1s;

/// Whether a parent that is alive, and has the resources, never answers like this.
bool is_final(const Introduction& attempt) {
  using Reason = Introduction::Reason;
  switch (attempt.reason()) {
    case Reason::unreachable:
      return attempt.error() == ECONNREFUSED || attempt.error() == EMFILE ||
             attempt.error() == ENFILE || attempt.error() == EACCES || attempt.error() == EPERM;
    case Reason::stranger:
    case Reason::other_version:
    case Reason::wrong_answer:
      return true;
    default:
      return false;
  }
}

}  // namespace

RendezvousParent::RendezvousParent(int rank, const SocketAddress& address,
                                   const protocol::Bytes32& secret, const protocol::Child& me,
                                   std::size_t roster_bytes, Time patience)
    : rank_(rank),
      address_(address),
      secret_(secret),
      me_(me),
      patience_(patience),
      attempt_(address, secret),
      pause_(kFirstPause),
      roster_(roster_bytes) {}

RendezvousParent::State RendezvousParent::step(Time now) {
  if (pausing_) {
    if (now < again_) return State::under_way;
    pausing_ = false;
    attempt_ = Introduction(address_, secret_);
  }
  if (!attempt_.ended()) attempt_.step();
  if (attempt_.state() == Introduction::State::failed) {
    problem_ = problem();
    if (!is_final(attempt_)) {
      refused_since_ = {};
    } else if (refused_since_ == Time{}) {
      refused_since_ = now;
    } else if (now - refused_since_ >= kRefusedFor) {
      return State::failed;
    }
    try_again(now);
  }
  if (attempt_.state() == Introduction::State::done) {
    refused_since_ = {};
    if (!introduced_) {
      const auto frame = protocol::frame(attempt_.session(), protocol::FrameType::child,
                                         {protocol::bytes_of(me_)});
      // Only 64 bytes were sent before, so there is room: this does not wait.
      introduced_ = write_exactly(attempt_.socket(), *frame, Deadline{}) == IoResult::done;
      if (!introduced_) try_again(now);
    }
    if (introduced_) {
      const ReadResult result = read_more(attempt_.socket(), roster_, received_);
      if (result == ReadResult::whole) return State::whole;
      if (result == ReadResult::more) return State::under_way;
      problem_ = "it closed the connection";
      try_again(now);
    }
  }
  if (now < patience_) return State::under_way;
  if (!pausing_) problem_ = problem();
  return State::failed;
}

RendezvousParent::Time RendezvousParent::next_wake() const {
  if (pausing_) return std::min(again_, patience_);
  return introduced_ ? Time::max() : patience_;
}

void RendezvousParent::try_again(Time now) {
  attempt_ = Introduction();
  pausing_ = true;
  introduced_ = false;
  received_ = 0;
  again_ = now + pause_;
  pause_ = std::min<std::chrono::nanoseconds>(2 * pause_, kLongestPause);
}

std::string RendezvousParent::problem() const {
  using Reason = Introduction::Reason;
  switch (attempt_.reason()) {
    case Reason::unreachable:
      return std::generic_category().message(attempt_.error()) +
             (attempt_.error() == EMFILE || attempt_.error() == ENFILE ? " (see `ulimit -n`)" : "");
    case Reason::turned_away:
    case Reason::rejected:
      return "it closes the connection";
    case Reason::stranger:
      return "what answers there is not Tutti";
    case Reason::other_version:
      return fmt::format("it speaks version {} of the protocol, not {}", attempt_.version(),
                         protocol::kVersion);
    case Reason::wrong_answer:
      return "what answers there does not know the job's secret";
    case Reason::none:
      break;
  }
  return attempt_.state() == Introduction::State::connecting ? "no connection comes about"
                                                             : "it accepted, but says nothing";
}

Error RendezvousParent::trouble(const std::string& me) const {
  return Error(ErrorCode::system,
               fmt::format("rendezvous: {} cannot get the ranks' cards from rank {} at {}: {}; the "
                           "hosts of a job must reach each other, and no rank may be stopped",
                           me, rank_, to_string(address_), problem_),
               rank_);
}

}  // namespace tutti
